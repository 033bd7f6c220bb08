"""The loop: the queue, the scheduler, and the steps that compute its jobs."""
