"""What a user writes: sweep specs with axes, workloads, load levels, SLOs and windows, validated field by field."""
