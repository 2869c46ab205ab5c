"""Recording under a budget: laws, costs, gates, and the thread that holds them together."""
