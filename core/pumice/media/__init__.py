"""Images, videos, sounds and documents: from files of users to pixels, samples and texts, and back to files."""
