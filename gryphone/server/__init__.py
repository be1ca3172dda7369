"""HTTP around the recogniser: settings, the model's thread, routes, and the page in static/."""
