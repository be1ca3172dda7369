"""The page without a server: what is written into its folder, and what runs in the browser."""
