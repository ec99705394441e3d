"""What entering an `IPUStrategy`'s scope does for Keras: models made in it get the methods of IPU models."""
