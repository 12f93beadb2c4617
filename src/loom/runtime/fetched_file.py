"""The file at a URL that the user named."""

from __future__ import annotations

from loom.content.inputs import Attachment


async def fetch_file(url: str) -> Attachment:
    """Fetch the file at `url`. Of all private hosts, only that of the URL is allowed."""
    from loom.tools.download import download
    from loom.tools.egress import Egress, destination_of

    place = destination_of(url)
    found = await download(url, Egress(allow=(f"{place.host}:{place.port}",)))
    return Attachment(source=found.data, name=found.name)
