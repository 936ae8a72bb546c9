"""Writes what a package brings: an SBOM (CycloneDX 1.5, JSON), and a list of names, versions and licences.

Arguments: SITE_PACKAGES NAME VERSION FOLDER
"""

import json
import sys
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path


def licence(metadata: Message) -> str:
    """Return the licence of a distribution: its SPDX expression, else its first line of text, else its classifiers."""
    if expression := metadata.get("License-Expression"):
        return expression
    text = (metadata.get("License") or "").strip().partition("\n")[0]
    classified = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if each.startswith("License ::")]
    return (text if 0 < len(text) <= 60 else "") or ", ".join(classified) or "unknown"


def component(found: Distribution) -> dict[str, object]:
    """Return the component of a distribution."""
    name, version = found.metadata["Name"], found.version
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
        "licenses": [{"license": {"name": licence(found.metadata)}}],
    }


def main() -> None:
    """Write `sbom.cdx.json` and `licences`."""
    packages, name, version, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    components = sorted((component(each) for each in distributions(path=[packages])), key=lambda each: str(each["purl"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": components,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.cdx.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    lines = [f"{each['name']} {each['version']}: {each['licenses'][0]['license']['name']}\n" for each in components]  # type: ignore[index]
    (folder / "licences").write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
