"""One prediction: ink -> memory -> refined tokens -> a weighed, placed answer."""
