"""Settings of the key, and of what is encrypted with it."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings


class KeySettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`."""

    key: SecretStr | None = Field(
        default=None,
        description="The key behind placeholders and encryption, 32 bytes in hex; by default a file in the home "
        "folder. Workers that share a store share it.",
    )
    previous_keys: SecretStr | None = Field(
        default=None,
        description="Keys that were used before, in hex with commas between, the newest first: what they encrypted "
        "stays readable, and placeholders are those of the last of them.",
    )
    encrypt_payloads: bool | None = Field(
        default=None,
        description="Encrypt what Temporal keeps: payloads, failures, summaries. Not given: where WAYSTATION_KEY is "
        "set. The same for all workers and clients of a namespace (docs/codec.md).",
    )
    encrypt_at_rest: bool | None = Field(
        default=None,
        description="Encrypt texts in the store: questions, documents, transcripts, notes, reports. Not given: where "
        "WAYSTATION_KEY is set. What was written before stays as it is.",
    )
    codec_token: SecretStr | None = Field(
        default=None,
        description="Token that `waystation codec-server` asks for, as Authorization: Bearer; without it its address "
        "has a secret path.",
    )

    @property
    def encrypts_payloads(self) -> bool:
        """Whether payloads are encrypted. The key that is made on first use does not mean it: whoever can read the
        server's file on this machine can read that key, too.
        """
        return self.key is not None if self.encrypt_payloads is None else self.encrypt_payloads

    @property
    def encrypts_at_rest(self) -> bool:
        """Whether the store's texts are encrypted, by the same rule: a lost key then loses them."""
        return self.key is not None if self.encrypt_at_rest is None else self.encrypt_at_rest
