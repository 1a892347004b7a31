"""Providers that break the contract, one sentence each: the checks must see every one of them."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from costgpu.errors import NoCapacity
from costgpu.models.instance import CreateRequest, Identity, Instance, InstanceRef, InstanceState, Safeguard
from costgpu.models.offer import Offer
from costgpu.models.run import EndedBy
from costgpu.providers.base import OrphanedResource, OwnedResources
from tests.fake_cloud import FakeProvider

BREACHES: dict[str, list[type[FakeProvider]]] = {}
_numbers = itertools.count()


def breaks(*names: str) -> Callable[[type[FakeProvider]], type[FakeProvider]]:
    """Says which checks must fail on it."""

    def note(variant: type[FakeProvider]) -> type[FakeProvider]:
        for name in names:
            BREACHES.setdefault(name, []).append(variant)
        return variant

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
class IgnoresTokens(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        return super().create(fresh(request))


@breaks("the_same_token_at_once_is_one_instance")
class LooksAndThenCreates(FakeProvider):
    """Idempotent only for those who come one after the other."""

    def create(self, request: CreateRequest) -> Instance:
        known = self.cloud.instances.get(self.cloud.by_token.get(request.token, ""))
        if known is not None:
            return known.describe()
        time.sleep(0.05)
        self.cloud.by_token.pop(request.token, None)
        return super().create(request)


@breaks("a_token_with_other_parameters_creates_nothing")
class ComparesEverything(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        kind = request.offer.instance_type
        return super().create(replace(request, token=f"{request.token}.{kind}"))


@breaks("another_token_is_another_instance")
class OneInstanceForEachRun(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        mine = self.cloud.instances_of(request.run_id)
        return mine[0].describe() if mine else super().create(request)


@breaks("a_token_whose_instance_is_gone_creates_no_second_one")
class ForgetsTheDead(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        known = self.cloud.instances.get(self.cloud.by_token.get(request.token, ""))
        if known is not None and not known.state.alive:
            del self.cloud.by_token[request.token]
        return super().create(request)


@breaks("create_returns_an_instance_with_everything_on_it", "tags_and_lease_are_there_for_everybody")
class TagsWithoutLease(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        made = super().create(request)
        instance = self.cloud.instances[made.ref.instance_id]
        instance.tags = {key: value for key, value in instance.tags.items() if "lease" not in key}
        return instance.describe()


@breaks(
    "tags_and_lease_are_there_for_everybody", "list_owned_reports_ours_alone", "the_same_token_is_the_same_instance"
)
class TagsLater(FakeProvider):
    """Untagged as long as nobody comes back to tag it."""

    def create(self, request: CreateRequest) -> Instance:
        made = super().create(request)
        self.cloud.instances[made.ref.instance_id].tags = {}
        return made


@breaks("create_waits_for_nothing")
class WaitsUntilRunning(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        made = super().create(request)
        self.cloud.clock.sleep(30)
        return self.cloud.instance(made.ref.instance_id).describe()


@breaks("a_refused_create_call_creates_nothing")
class CreatesSomewhereElse(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        offer = replace(request.offer, region=self.cloud.regions[0])
        return super().create(replace(request, offer=offer))


@breaks("a_refused_create_call_creates_nothing", "zones_are_places_to_try")
class CallsEverythingNoCapacity(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        if request.offer.region not in self.cloud.regions:
            raise NoCapacity("none there")
        return super().create(request)

    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        return super().zones(offer) if offer.region in self.cloud.regions else (None,)


@breaks("a_check_creates_nothing")
class ChecksByCreating(FakeProvider):
    def check(self, request: CreateRequest) -> None:
        self.terminate(self.create(request).ref)


@breaks("describe_knows_no_stranger")
class KnowsEverybody(FakeProvider):
    def describe(self, ref: InstanceRef) -> Instance | None:
        found = super().describe(ref)
        some = next(iter(self.cloud.instances.values()), None)
        if found is None and some is None:
            return replace(self.cloud.instance(self.cloud.add_foreign().instance_id).describe(), ref=ref)
        return found


@breaks("find_goes_by_token_in_any_state")
class FindsTheLivingOnly(FakeProvider):
    def find(self, request: CreateRequest) -> Instance | None:
        found = super().find(request)
        return found if found is not None and found.state is InstanceState.RUNNING else None


@breaks("find_goes_by_token_in_any_state")
class FindsByRun(FakeProvider):
    def find(self, request: CreateRequest) -> Instance | None:
        mine = self.cloud.instances_of(request.run_id)
        return mine[0].describe() if mine else None


@breaks("list_owned_reports_ours_alone")
class ListsByName(FakeProvider):
    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        everything = (one for one in self.cloud.instances.values() if self.cloud.time() >= one.visible_at)
        return replace(super().list_owned(regions), instances=tuple(one.describe() for one in everything))


@breaks("list_owned_looks_where_it_is_told_to")
class ListsEverywhere(FakeProvider):
    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        return super().list_owned()


@breaks("a_silent_region_hides_no_other")
class GivesUpAtTheFirst(FakeProvider):
    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        found = super().list_owned(regions)
        return replace(found, instances=()) if found.unreachable else found


@breaks("a_silent_region_hides_no_other")
class HidesSilence(FakeProvider):
    def list_owned(self, regions: Sequence[str] | None = None) -> OwnedResources:
        return replace(super().list_owned(regions), unreachable=())


@breaks(
    "terminate_is_confirmed_by_describe",
    "terminate_may_be_repeated",
    "terminate_works_at_once",
    "terminate_works_on_a_stopped_instance",
    "clean_up_leaves_nothing",
)
class AcceptsAndDoesNothing(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        pass


@breaks("terminate_is_confirmed_by_describe")
class WaitsForTheEnd(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        super().terminate(ref)
        self.cloud.clock.sleep(60)


@breaks("terminate_is_confirmed_by_describe", "terminate_works_on_a_stopped_instance")
class StopsInsteadOfTerminating(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        self.cloud.stop_by_somebody(ref.instance_id)


@breaks("terminate_may_be_repeated")
class RefusesTheUnknown(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        if self.cloud.instances.get(ref.instance_id) is None:
            raise NoCapacity("no such instance")
        super().terminate(ref)


@breaks("terminate_works_at_once")
class TrustsTheLaggingDescribe(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        if self.describe(ref) is not None:
            super().terminate(ref)


@breaks("a_power_off_from_inside_terminates")
class PowerOffStops(FakeProvider):
    def describe(self, ref: InstanceRef) -> Instance | None:
        found = super().describe(ref)
        off = found is not None and self.cloud.instances[ref.instance_id].ended_by is EndedBy.SOMEBODY_ELSE
        return replace(found, state=InstanceState.STOPPED) if found is not None and off else found


@breaks("the_lease_ends_it_without_anybody")
class ForgetsTheWatchdog(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        self.cloud.watchdog_works = False
        return super().create(request)


@breaks("the_lease_ends_it_without_anybody")
class EndsTooEarlyToBeOfUse(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        made = super().create(request)
        self.cloud.instances[made.ref.instance_id].preempted_at = self.cloud.time()
        return made


@breaks("what_is_not_ours_is_refused")
class TerminatesAnything(FakeProvider):
    def terminate(self, ref: InstanceRef) -> None:
        known = self.cloud.instances.get(ref.instance_id)
        if known is not None:
            known.begin_end(self.cloud.time(), EndedBy.CLIENT)


@breaks("what_is_not_ours_is_refused")
class IgnoresWhatIsNotOurs(FakeProvider):
    """Harmless, but it says that all is well."""

    def terminate(self, ref: InstanceRef) -> None:
        known = self.cloud.instances.get(ref.instance_id)
        if known is not None and known.ours:
            super().terminate(ref)


@breaks("clean_up_leaves_nothing")
class CleansNothingUp(FakeProvider):
    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        return ()


@breaks("clean_up_leaves_nothing")
class CleansUpTheMachine(FakeProvider):
    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        for one in self.cloud.instances_of(run_id):
            self.terminate(one.ref)
        return super().clean_up(run_id, region)


@breaks("clean_up_of_one_run_leaves_the_others")
class CleansUpEveryRun(FakeProvider):
    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        for left in self.cloud.resources.of():
            self.cloud.resources.remove(left.run_id, left.region)
        return ()


@breaks("clean_up_spares_what_is_not_ours")
class CleansUpByName(FakeProvider):
    def clean_up(self, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
        self.cloud.resources.adopt(run_id)
        return super().clean_up(run_id, region)


@breaks("remove_takes_one_thing_and_no_other")
class RemovesNothing(FakeProvider):
    def remove(self, leftover: OrphanedResource) -> bool:
        return True


@breaks("remove_takes_one_thing_and_no_other")
class RemovesTheWholeRun(FakeProvider):
    def remove(self, leftover: OrphanedResource) -> bool:
        self.cloud.resources.remove(leftover.run_id, leftover.region)
        return True


@breaks("remove_refuses_what_is_not_ours")
class RemovesAnything(FakeProvider):
    def remove(self, leftover: OrphanedResource) -> bool:
        self.cloud.resources.adopt(leftover.run_id)
        return super().remove(leftover)


@breaks("access_is_for_one_address")
class AddsInsteadOfReplacing(FakeProvider):
    def open_access(self, instance: Instance, allow_from: str) -> None:
        rule = self.cloud.resources.access_rule(instance.run_id, instance.ref.region)
        before = rule.allow_from if rule is not None else ()
        super().open_access(instance, allow_from)
        if rule is not None:
            rule.allow_from = (*before, allow_from)


@breaks("access_is_for_one_address")
class OpenToTheWorld(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        return super().create(replace(request, allow_from="0.0.0.0/0"))


@breaks("the_console_is_text_at_any_time")
class SilentConsole(FakeProvider):
    def console(self, ref: InstanceRef) -> str:
        return ""


@breaks("no_secret_shows")
class PrintsItsUserData(FakeProvider):
    def console(self, ref: InstanceRef) -> str:
        request = self.cloud.instances[ref.instance_id].request
        return super().console(ref) + (request.boot_script if request is not None else "")


@breaks("no_secret_shows")
class TagsTheBootScript(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        made = super().create(request)
        instance = self.cloud.instances[made.ref.instance_id]
        instance.tags = {**instance.tags, "user-data": request.boot_script}
        return made


@breaks("the_identity_names_account_and_principal")
class Nobody(FakeProvider):
    def identity(self) -> Identity:
        return replace(super().identity(), principal="")


@breaks("layers_act_by_the_lease")
class ActsAfterTheLease(FakeProvider):
    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        late = self.cloud.clock.now().replace(year=request.lease_until.year + 1)
        return tuple(replace(layer, deadline=late) for layer in super().layers(request))


@breaks("layers_act_by_the_lease")
class ArmsNothing(FakeProvider):
    def layers(self, request: CreateRequest) -> tuple[Safeguard, ...]:
        return tuple(replace(layer, armed=False) for layer in super().layers(request))


@breaks("zones_are_places_to_try")
class KnowsNoZone(FakeProvider):
    def zones(self, offer: Offer) -> tuple[str | None, ...]:
        return ()


@breaks("only_provider_errors_leave")
class LetsSdkErrorsOut(FakeProvider):
    def describe(self, ref: InstanceRef) -> Instance | None:
        if self.cloud.faults.pending:
            raise ConnectionError("urllib3 says no")
        return super().describe(ref)


@breaks("unanswered_means_call_again")
class CallsSilenceARefusal(FakeProvider):
    def create(self, request: CreateRequest) -> Instance:
        try:
            return super().create(request)
        except Exception as error:
            raise NoCapacity("it did not answer") from error
