"""Networks side by side: trained alike, on several seeds, from one small file; what differs, and what that means."""
