"""Single kernels on GPUs and CPUs: physics, learned efficiency, software versions, power."""
