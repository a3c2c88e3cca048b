"""Parts of decoding images: reading files, what that costs, and the pixels."""
