"""Models: their profiles, prices and endpoints, and the clients that call them."""
