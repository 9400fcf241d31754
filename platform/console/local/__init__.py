"""Everything that runs Bursar on one machine: installation, private servers, processes."""
