"""Providers that break the part of the contract which is about groups, one sentence each."""

from dataclasses import replace

from costgpu.models.instance import CreateRequest, Instance
from costgpu.providers.base import TAG_GROUP, OrphanedResource
from tests.contract.breaches import breaks
from tests.fake_cloud import FakeProvider


@breaks("machines_of_a_group_are_told_by_their_tag")
def create__without_the_group(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    instance = self.cloud.instances[made.ref.instance_id]
    instance.tags = {key: value for key, value in instance.tags.items() if key != TAG_GROUP}
    return instance.describe()


@breaks("what_a_group_shares_is_made_once")
def create__shares_nothing(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, replace(request, group=None))
    self.cloud.resources.remove(request.run_id, request.offer.region)
    return made


@breaks("what_a_group_shares_is_made_once")
def create__shares_again(self: FakeProvider, request: CreateRequest) -> Instance:
    made = FakeProvider.create(self, request)
    if request.group is not None:
        self.cloud.resources.add("group network", request.offer.region, request.group.group_id, shared=True)
    return made


@breaks("the_clean_up_of_another_node_leaves_what_is_shared")
def clean_up__of_the_whole_group(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    for one in self.cloud.instances_of(run_id):
        self.cloud.resources.remove(one.tags.get(TAG_GROUP, run_id), region)
    return FakeProvider.clean_up(self, run_id, region)


@breaks("the_clean_up_of_another_node_leaves_what_is_shared")
def clean_up__reports_for_others(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    groups = {one.tags.get(TAG_GROUP, run_id) for one in self.cloud.instances_of(run_id)} | {run_id}
    FakeProvider.clean_up(self, run_id, region)
    return tuple(left for group in groups for left in self.cloud.resources.of(group, region))


@breaks("what_is_shared_stays_while_a_machine_of_the_group_is_left")
def clean_up__takes_it_from_the_others(self: FakeProvider, run_id: str, region: str) -> tuple[OrphanedResource, ...]:
    self.cloud.resources.remove(run_id, region)
    return ()


@breaks("what_is_shared_stays_while_a_machine_of_the_group_is_left")
def remove__takes_it_from_the_others(self: FakeProvider, leftover: OrphanedResource) -> bool:
    return self.cloud.resources.take(leftover.resource_id, leftover.region, used=False)


@breaks("what_a_group_leaves_is_removed_by_median")
def remove__never_what_is_shared(self: FakeProvider, leftover: OrphanedResource) -> bool:
    return not self.cloud.resources.is_shared(leftover.resource_id) and FakeProvider.remove(self, leftover)


@breaks("a_quota_must_hold_the_whole_group")
def check__of_one_machine(self: FakeProvider, request: CreateRequest) -> None:
    FakeProvider.check(self, replace(request, group=None))
