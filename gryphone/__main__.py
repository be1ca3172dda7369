"""`python -m gryphone`."""

from gryphone.cli import main

main()
