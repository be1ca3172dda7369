"""Pictures -> ink: what the pen would have recorded, so that one raster path serves both."""
