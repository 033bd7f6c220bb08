"""What the CPU computes with: functions that Numba compiles."""
