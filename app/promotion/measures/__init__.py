"""What is compared: rows, answers, times, memory, signatures."""
