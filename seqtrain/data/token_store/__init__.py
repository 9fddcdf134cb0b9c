"""Token stores: text that was tokenised once, in files that are mapped into memory."""
