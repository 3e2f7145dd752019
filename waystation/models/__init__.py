"""Models: what is known of them, and the clients that call them."""
