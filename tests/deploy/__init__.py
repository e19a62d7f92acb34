"""What is shipped to run the product: chart, plain manifests, admission policies, image, compose file."""
