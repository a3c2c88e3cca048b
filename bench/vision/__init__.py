"""Pictures under load: Basket beside the naive API and service-streamer."""
