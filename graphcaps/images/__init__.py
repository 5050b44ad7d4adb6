"""Image networks: data sets, networks, training, analysis and export."""
