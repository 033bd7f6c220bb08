"""The bundled protocols, a package each, which uses ``pumice_server.interface`` alone."""
