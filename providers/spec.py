"""What costgpu knows of a provider without loading its adapter: names, prices, settings, and how to make the rest.

Every adapter's package has one `ProviderSpec`. Importing it must be cheap: no SDK and no pydantic. The functions in it
import the adapter when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date
    from decimal import Decimal
    from pathlib import Path

    from costgpu.clock import Clock
    from costgpu.models.instance import InstanceRef
    from costgpu.models.offer import Offer
    from costgpu.models.provider_costs import ProviderCosts
    from costgpu.providers.base import Billing, Bucket, Diagnosable, PriceSource, Provider


class Trust(Enum):
    """Which files may set a setting. Variables and flags may set every one."""

    ANY_PROJECT = "any"
    OWN_PROJECT = "own"  # a project file that is the user's own
    USER = "user"  # only the user's file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetting:
    """A setting of one provider: ``PROVIDER_KEY`` in a file, ``COSTGPU_PROVIDER_KEY`` in the environment."""

    pattern: str  # regular expression that the whole value matches
    form: str  # what the value looks like, to complete "is not ..."
    trust: Trust  # which files may set it
    option: str = ""  # option of `costgpu run` that sets it, such as ``--subnet``; empty for none
    names_account: bool = False  # whether it says whose machines are meant, so that cron needs it too


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """What an adapter is made with."""

    clock: Clock  # for everything that waits
    data_folder: Callable[[], Path]  # makes and returns costgpu's own data folder
    # the provider's settings that are set, by their keys in `ProviderSpec.settings`
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """One provider."""

    name: str  # as users write it in ``--infra`` and as the ledger stores it
    display_name: str  # as messages name it
    publisher: str  # FOCUS column PublisherName
    service: str  # FOCUS column ServiceName
    account_word: str = "account"  # what the provider calls whose bill it is: account, project
    adapter: Callable[[ProviderConfig], Provider]
    has_credentials: Callable[[], bool]  # whether it makes sense to ask it; fast, and without its SDK where possible
    login_hint: str = ""  # how to get credentials
    settings: Mapping[str, ProviderSetting] = field(default_factory=dict)  # key -> its rules
    # whether no public image boots an offer's machine with its accelerator. Such offers are in use only where the
    # provider's setting ``image`` names one. Asks nobody
    needs_own_image: Callable[[Offer], bool] = lambda _: False
    costs: ProviderCosts | None = None  # prices of disk and address; None is an error where they are needed
    # makes what `costgpu doctor` asks; None if there is nothing to ask
    diagnostics: Callable[[ProviderConfig], Diagnosable] | None = None
    # the permissions that a user needs, as the provider takes them; None if it has no such document
    policy_file: Path | None = None
    # makes what tells bills, or returns None without the settings for it; None if nothing tells
    billing: Callable[[ProviderConfig], Billing | None] | None = None
    # makes what `costgpu prices refresh` reads; None if the provider has no price list
    price_source: Callable[[ProviderConfig], PriceSource] | None = None
    # the same for what needs no credentials; None if nothing is public. Its note says what is asked of whom
    public_price_source: Callable[[ProviderConfig], PriceSource] | None = None
    # whether a machine of an offer's type can be started with its purchase option at all, whatever price lists say.
    # Neither the shipped snapshot nor a refresh has an offer of which this is false
    is_sold: Callable[[Offer], bool] = lambda _: True
    offers_file: Path | None = None  # offers in the columns of the shipped snapshot; None if they ship with costgpu
    cpus_file: Path | None = None  # CPU families in the columns of the shipped table; None if they ship with costgpu
    bucket: Callable[[str], Bucket] | None = None  # opens a bucket by its URL; None if outputs cannot be kept there
    bucket_scheme: str = ""  # beginning of such URLs, such as ``s3``
    free: bool = False  # whether machines cost nothing unless the user says so
    over_ssh: bool = True  # whether machines are reached over SSH, with an address and keys; False for processes here
    label: str = ""  # what a machine is called instead of its type; empty for the type
    # makes the only offer, of this computer as it is, from the price of an hour, and the day; None for machines that
    # are rented, whose offers are in price lists
    own_offer: Callable[[Decimal, date], Offer] | None = None
    # the command that ends an instance without costgpu, from its reference and the account
    end_by_hand: Callable[[InstanceRef, str], str] = lambda ref, _: f"costgpu cancel {ref.instance_id}"
    account_in_end_command: bool = False  # whether that names the account; `Provider.identity` then asks nobody
    # how much later than the deadline the machine's own watchdog acts, because the provider itself deletes the machine
    # at the deadline. 0 if it does not
    watchdog_delay_seconds: float = 0.0
    host_key_seconds: float = (
        45.0  # how long a machine may show its image's host key: its boot script may run after sshd
    )
    spot_notice: str = (
        ""  # how a machine reads that it is taken back: ``imdsv2``, ``computemetadata``; empty for no notice
    )
    environment: tuple[str, ...] = ()  # variables that say where credentials are, or which; cron needs them
    # variables that hold a secret -> what to do instead, for cron
    secret_environment: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()  # commands that credentials may need, for the search path of cron
