"""Places where deployments run that the platform can set up itself."""
