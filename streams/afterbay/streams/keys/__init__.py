"""Keys: pseudonyms, the vault, the key store and the sealer.

In:   a home's `keys/` folder
Out:  `ensure_keys` (first use) and `Pseudonyms`; the rest is imported from its own module:
      `vault` (the pair that opens), `store` (sealed keys), `sealer` (seals and opens values)
Never: imports more than the standard library here, because the gateway imports this package
"""

from afterbay.streams.keys.files import ensure_keys
from afterbay.streams.keys.pseudonyms import Pseudonyms

__all__ = ["Pseudonyms", "ensure_keys"]
