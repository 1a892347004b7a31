"""Providers that break the contract, one sentence each: the checks must see every one of them."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from costgpu.errors import NoCapacity
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.offer import Offer
from costgpu.models.run import EndedBy
from costgpu.providers.base import OrphanedResource, OwnedResources
from tests.contract.test_contract import CLIENTS
from tests.fake_cloud import FakeProvider

BREACHES: dict[str, list[type[FakeProvider]]] = {}
_numbers = itertools.count()
_all_have_looked = threading.Barrier(CLIENTS)


def breaks(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Says which checks must fail on a provider with this as its method; ``create__late`` is a `create`."""

    def note(method: Callable[..., Any]) -> Callable[..., Any]:
        variant = type(method.__name__, (FakeProvider,), {method.__name__.partition("__")[0]: method})
        for name in names:
            BREACHES.setdefault(name, []).append(variant)
        return method

    return note


def fresh(request: CreateRequest) -> CreateRequest:
    """The request with a token that nobody has used."""
    return replace(request, token=f"{request.token}.{next(_numbers)}")


@breaks(
    "the_same_token_is_the_same_instance",
    "the_same_token_at_once_is_one_instance",
    "a_token_with_other_parameters_creates_nothing",
    "a_token_whose_instance_is_gone_creates_no_second_one",
    "unanswered_means_call_again",
)
def create__ignores_tokens(self: FakeProvider, request: CreateRequest) -> Instance:
    return FakeProvider.create(self, fresh(request))


@breaks("the_same_token_at_once_is_one_instance")
def create__looks_and_then_creates(self: FakeProvider, request: CreateRequest) -> Instance:
    """Idempotent only for those who come one after the other."""
    known = self.cloud.instances.get(self.cloud.by_token.get(request.token, ""))
    if known is not None:
        return known.describe()
    with contextlib.suppress(threading.BrokenBarrierError):  # a check that creates one alone
        _all_have_looked.wait(60)
    self.cloud.by_token.pop(request.token, None)
    return FakeProvider.create(self, request)


@breaks("a_token_with_other_parameters_creates_nothing")
def create__compares_everything(self: FakeProvider, request: CreateRequest) -> Instance:
    kind = request.offer.instance_type
    return FakeProvider.create(self, replace(request, token=f"{request.token}.{kind}"))


@breaks("another_token_is_another_instance")
def create__one_instance_for_each_run(self: FakeProvider, request: CreateRequest) -> Instance:
    mine = self.cloud.instances_of(request.run_id)
    return mine[0].describe() if mine else FakeProvider.create(self, request)


@breaks("a_token_whose_instance_is_gone_creates_no_second_one")
def create__forgets_the_dead(self: FakeProvider, request: CreateRequest) -> Instance:
    known = self.cloud.instances.get(self.cloud.by_token.get(request.token, ""))
    if known is not None and not known.state.alive:
        del self.cloud.by_token[request.token]
    return FakeProvider.create(self, request)


@breaks("create_returns_an_instance_with_everything_on_it", "tags_and_lease_are_there_for_everybody")
def create__tags_without_lease(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    instance = self.cloud.instances[made.ref.instance_id]
    instance.tags = {key: value for key, value in instance.tags.items() if "lease" not in key}
    return instance.describe()


@breaks(
    "tags_and_lease_are_there_for_everybody", "list_owned_reports_ours_alone", "the_same_token_is_the_same_instance"
)
def create__tags_later(self: FakeProvider, request: CreateRequest) -> Instance:
    """Untagged as long as nobody comes back to tag it."""
    made = FakeProvider.create(self, request)
    self.cloud.instances[made.ref.instance_id].tags = {}
    return made


@breaks("create_waits_for_nothing")
def create__waits_until_running(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    self.cloud.clock.sleep(30)
    return self.cloud.instance(made.ref.instance_id).describe()


@breaks("a_refused_create_call_creates_nothing")
def create__creates_somewhere_else(self: FakeProvider, request: CreateRequest) -> Instance:
    offer = replace(request.offer, region=self.cloud.regions[0])
    return FakeProvider.create(self, replace(request, offer=offer))


@breaks("a_refused_create_call_creates_nothing")
def create__calls_everything_no_capacity(self: FakeProvider, request: CreateRequest) -> Instance:
    if request.offer.region not in self.cloud.regions:
        raise NoCapacity("none there")
    return FakeProvider.create(self, request)


@breaks("zones_are_places_to_try")
def zones__for_everywhere(self: FakeProvider, offer: Offer) -> tuple[str | None, ...]:
    return FakeProvider.zones(self, offer) if offer.region in self.cloud.regions else (None,)


@breaks("a_check_creates_nothing")
def check__checks_by_creating(self: FakeProvider, request: CreateRequest) -> None:
    self.terminate(self.create(request).ref)


@breaks("describe_knows_no_stranger")
def describe__knows_everybody(self: FakeProvider, ref: InstanceRef) -> Instance | None:
    found = FakeProvider.describe(self, ref)
    some = next(iter(self.cloud.instances.values()), None)
    if found is None and some is None:
        return replace(self.cloud.instance(self.cloud.add_foreign().instance_id).describe(), ref=ref)
    return found


@breaks("find_goes_by_token_in_any_state")
def find__finds_the_living_only(self: FakeProvider, request: CreateRequest) -> Instance | None:
    found = FakeProvider.find(self, request)
    return found if found is not None and found.state is InstanceState.RUNNING else None


@breaks("find_goes_by_token_in_any_state")
def find__finds_by_run(self: FakeProvider, request: CreateRequest) -> Instance | None:
    mine = self.cloud.instances_of(request.run_id)
    return mine[0].describe() if mine else None


@breaks("list_owned_reports_ours_alone")
def list_owned__lists_by_name(self: FakeProvider, regions: Sequence[str] | None = None) -> OwnedResources:
    everything = (one for one in self.cloud.instances.values() if self.cloud.time() >= one.visible_at)
    return replace(FakeProvider.list_owned(self, regions), instances=tuple(one.describe() for one in everything))


@breaks("list_owned_looks_where_it_is_told_to")
def list_owned__lists_everywhere(self: FakeProvider, regions: Sequence[str] | None = None) -> OwnedResources:
    return FakeProvider.list_owned(self)


@breaks("a_silent_region_hides_no_other")
def list_owned__gives_up_at_the_first(self: FakeProvider, regions: Sequence[str] | None = None) -> OwnedResources:
    found = FakeProvider.list_owned(self, regions)
    return replace(found, instances=()) if found.unreachable else found


@breaks("a_silent_region_hides_no_other")
def list_owned__hides_silence(self: FakeProvider, regions: Sequence[str] | None = None) -> OwnedResources:
    return replace(FakeProvider.list_owned(self, regions), unreachable=())


@breaks(
    "terminate_is_confirmed_by_describe",
    "terminate_may_be_repeated",
    "terminate_works_at_once",
    "terminate_works_on_a_stopped_instance",
    "clean_up_leaves_nothing",
)
def terminate__accepts_and_does_nothing(self: FakeProvider, ref: InstanceRef) -> None:
    pass


@breaks("terminate_is_confirmed_by_describe")
def terminate__waits_for_the_end(self: FakeProvider, ref: InstanceRef) -> None:
    FakeProvider.terminate(self, ref)
    self.cloud.clock.sleep(60)


@breaks("terminate_is_confirmed_by_describe", "terminate_works_on_a_stopped_instance")
def terminate__stops_instead_of_terminating(self: FakeProvider, ref: InstanceRef) -> None:
    self.cloud.stop_by_somebody(ref.instance_id)


@breaks("terminate_may_be_repeated")
def terminate__refuses_the_unknown(self: FakeProvider, ref: InstanceRef) -> None:
    if self.cloud.instances.get(ref.instance_id) is None:
        raise NoCapacity("no such instance")
    FakeProvider.terminate(self, ref)


@breaks("terminate_works_at_once")
def terminate__trusts_the_lagging_describe(self: FakeProvider, ref: InstanceRef) -> None:
    if self.describe(ref) is not None:
        FakeProvider.terminate(self, ref)


@breaks("a_power_off_from_inside_terminates")
def describe__power_off_stops(self: FakeProvider, ref: InstanceRef) -> Instance | None:
    found = FakeProvider.describe(self, ref)
    off = found is not None and self.cloud.instances[ref.instance_id].ended_by is EndedBy.SOMEBODY_ELSE
    return replace(found, state=InstanceState.STOPPED) if found is not None and off else found


@breaks("the_lease_ends_it_without_anybody")
def create__forgets_the_watchdog(self: FakeProvider, request: CreateRequest) -> Instance:
    self.cloud.watchdog_works = False
    return FakeProvider.create(self, request)


@breaks("the_lease_ends_it_without_anybody")
def create__ends_too_early_to_be_of_use(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    self.cloud.instances[made.ref.instance_id].preempted_at = self.cloud.time()
    return made


@breaks("what_is_not_ours_is_refused")
def terminate__terminates_anything(self: FakeProvider, ref: InstanceRef) -> None:
    known = self.cloud.instances.get(ref.instance_id)
    if known is not None:
        known.begin_end(self.cloud.time(), EndedBy.CLIENT)


@breaks("what_is_not_ours_is_refused")
def terminate__ignores_what_is_not_ours(self: FakeProvider, ref: InstanceRef) -> None:
    """Harmless, but it says that all is well."""
    known = self.cloud.instances.get(ref.instance_id)
    if known is not None and known.ours:
        FakeProvider.terminate(self, ref)


@breaks("clean_up_leaves_nothing", "what_a_create_call_has_begun_can_be_cleaned_up")
def clean_up__cleans_nothing_up(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    return ()


@breaks("clean_up_leaves_nothing")
def clean_up__cleans_up_the_machine(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    for one in self.cloud.instances_of(run_id):
        self.terminate(one.ref)
    return FakeProvider.clean_up(self, run_id, region)


@breaks("clean_up_of_one_run_leaves_the_others")
def clean_up__cleans_up_every_run(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    for left in self.cloud.resources.of():
        self.cloud.resources.remove(left.run_id, left.region)
    return ()


@breaks("clean_up_spares_what_is_not_ours")
def clean_up__cleans_up_by_name(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    self.cloud.resources.adopt(run_id)
    return FakeProvider.clean_up(self, run_id, region)


@breaks("remove_takes_one_thing_and_no_other")
def remove__removes_nothing(self: FakeProvider, leftover: OrphanedResource) -> bool:
    return True


@breaks("remove_takes_one_thing_and_no_other")
def remove__removes_the_whole_run(self: FakeProvider, leftover: OrphanedResource) -> bool:
    self.cloud.resources.remove(leftover.run_id, leftover.region)
    return True


@breaks("remove_refuses_what_is_not_ours")
def remove__removes_anything(self: FakeProvider, leftover: OrphanedResource) -> bool:
    self.cloud.resources.adopt(leftover.run_id)
    return FakeProvider.remove(self, leftover)


@breaks("access_is_for_one_address")
def open_access__adds_instead_of_replacing(self: FakeProvider, instance: Instance, allow_from: str) -> None:
    rule = self.cloud.resources.access_rule(instance.run_id, instance.ref.region)
    before = rule.allow_from if rule is not None else ()
    FakeProvider.open_access(self, instance, allow_from)
    if rule is not None:
        rule.allow_from = (*before, allow_from)


@breaks("access_is_for_one_address")
def create__open_to_the_world(self: FakeProvider, request: CreateRequest) -> Instance:
    return FakeProvider.create(self, replace(request, allow_from="0.0.0.0/0"))


@breaks("the_console_is_text_at_any_time")
def console__silent_console(self: FakeProvider, ref: InstanceRef) -> str:
    return ""


@breaks("no_secret_shows")
def console__prints_its_user_data(self: FakeProvider, ref: InstanceRef) -> str:
    request = self.cloud.instances[ref.instance_id].request
    return FakeProvider.console(self, ref) + (request.boot_script if request is not None else "")


@breaks("no_secret_shows")
def create__tags_the_boot_script(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    instance = self.cloud.instances[made.ref.instance_id]
    instance.tags = {**instance.tags, "user-data": request.boot_script}
    return made


@breaks("the_identity_names_account_and_principal")
def identity__nobody(self: FakeProvider) -> Identity:
    return replace(FakeProvider.identity(self), principal="")


@breaks("layers_act_by_the_lease")
def layers__acts_after_the_lease(self: FakeProvider, request: CreateRequest) -> tuple[Safeguard, ...]:
    late = self.cloud.clock.now().replace(year=request.lease_until.year + 1)
    return tuple(replace(layer, deadline=late) for layer in FakeProvider.layers(self, request))


@breaks("layers_act_by_the_lease")
def layers__arms_nothing(self: FakeProvider, request: CreateRequest) -> tuple[Safeguard, ...]:
    return tuple(replace(layer, armed=False) for layer in FakeProvider.layers(self, request))


@breaks("zones_are_places_to_try")
def zones__knows_no_zone(self: FakeProvider, offer: Offer) -> tuple[str | None, ...]:
    return ()


@breaks("only_provider_errors_leave")
def describe__lets_sdk_errors_out(self: FakeProvider, ref: InstanceRef) -> Instance | None:
    if self.cloud.faults.pending:
        raise ConnectionError("urllib3 says no")
    return FakeProvider.describe(self, ref)


@breaks("unanswered_means_call_again")
def create__calls_silence_a_refusal(self: FakeProvider, request: CreateRequest) -> Instance:
    try:
        return FakeProvider.create(self, request)
    except Exception as error:
        raise NoCapacity("it did not answer") from error
