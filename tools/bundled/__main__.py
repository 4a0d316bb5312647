"""Write the bundled corpus, a data file of the package: ``python -m tools.bundled``."""

from tools.bundled import compressed
from trelliswork.data.bundled import FILE

FILE.write_bytes(compressed())
print(f"{FILE}: {FILE.stat().st_size:,} bytes")
