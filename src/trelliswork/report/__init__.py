"""Pictures and tables of what models have learned."""
