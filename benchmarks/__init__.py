"""How fast and how lean training and answering are, each measured against its plain way in one run."""
