"""The emulated AWS account as a process of its own, and its control side."""

import urllib.request

from tests.emulators.emulator_client import RunningEmulator


class RunningEc2(RunningEmulator):
    """An emulated account; `url` is what AWS_ENDPOINT_URL must be."""

    server = "tests.emulators.ec2.server"
    gone = "terminated"

    def environment(self, access_key: str = "AKIAEMULATED", secret_key: str = "secret") -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def reset(self) -> None:
        self._ask_control("reset")
        self.enforce_permissions(on=False)

    def enforce_permissions(self, *, on: bool = True) -> None:
        """From now on IAM policies decide."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", data=b"0" if on else b"inf", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request, timeout=10).close()

    def calls(self) -> list[str]:
        """Names of the requests: ``ec2:RunInstances``; dry runs end with a question mark."""
        return [row["name"] for row in self.requests()]
