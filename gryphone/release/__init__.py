"""What a release needs: calibrated confidence, a model card, one checkpoint."""
