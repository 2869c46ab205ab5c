"""Requests of servers, found in what threads do with sockets: nobody marks them."""
