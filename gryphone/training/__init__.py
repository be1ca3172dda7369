"""One training step: samples -> masked canvases -> loss -> update."""
