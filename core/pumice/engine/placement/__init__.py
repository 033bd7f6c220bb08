"""What runs the graphs: backends, the placement of tensors and layers on devices, and compiled programs."""
