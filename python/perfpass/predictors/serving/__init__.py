"""Language models as they are served: time to the first token, per token, throughput, energy."""
