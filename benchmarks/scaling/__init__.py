"""How much one node does, measured; how much more many nodes do, by a model; and the tables of docs/scaling.md."""
