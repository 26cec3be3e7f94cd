"""Who writes the texts: a 4-bit model on this machine or one behind a server, and how prompts go through either."""
