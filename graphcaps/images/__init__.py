"""Image classification with capsules: data sets, networks, training, analysis and export."""
