"""False alarms and detections of rollouts, in virtual time."""
