"""The methods of the Compute Engine API: what each needs permission for, and what it answers."""

import copy
from collections.abc import Callable, Iterable

from tests.emulators.compute_engine import catalog_rows, filters, schema, validation
from tests.emulators.compute_engine.catalog import (
    ACCELERATORS,
    IMAGE_PROJECTS,
    IMAGES,
    REGIONS,
    ZONES,
    machine_types,
    region_of,
)
from tests.emulators.compute_engine.firewalls import Firewalls
from tests.emulators.compute_engine.instances import Instances
from tests.emulators.compute_engine.operations import Operations, Scope
from tests.emulators.compute_engine.project import DEFAULT_QUOTAS, GLOBAL_QUOTAS, ProjectState, Row, new_id
from tests.emulators.compute_engine.quotas import usage
from tests.emulators.compute_engine.wire import (
    HOST,
    PROJECT_NUMBER,
    GoogleError,
    answer,
    exists,
    invalid,
    not_found,
    permission,
)
from tests.emulators.wire import ApiCall, Reply

_COLLECTIONS = (
    "resourcePolicies",
    *("instances", "disks", "addresses", "zones", "snapshots", "firewalls", "networks", "machineTypes", "regions"),
    *(
        "resourcePolicies",
        "acceleratorTypes",
        "images",
        "zoneOperations",
        "regionOperations",
        "globalOperations",
        "operations",
        "projects",
    ),
)
_SCOPE_OF = {"addresses": "region", "resourcePolicies": "region"}
_STORED = ("disks", "addresses", "snapshots", "resourcePolicies")
_ZONAL = ("instances", "disks", "machineTypes", "acceleratorTypes", "operations")
_VERBS = {"insert": "create", "patch": "update", "aggregatedList": "list", "wait": "get"}
_INSERT = (
    "compute.instances.create",
    "compute.disks.create",
    "compute.instances.setMetadata",
    "compute.instances.setLabels",
    "compute.instances.setTags",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
)
"""What an insert needs (cloud.google.com/compute/docs/reference/rest/v1/instances/insert, 2026-11)."""


class Api:
    """Answers requests, once permission and faults have been dealt with."""

    def __init__(self, world: ProjectState, operations: Operations, instances: Instances, firewalls: Firewalls) -> None:
        self._world, self._operations, self._instances, self._firewalls = world, operations, instances, firewalls
        self._writes: dict[str, Callable[[ApiCall], Row]] = {
            "instances.insert": instances.insert,
            **{f"instances.{verb}": self._to_instance for verb in ("delete", "stop", "simulateMaintenanceEvent")},
            "firewalls.insert": firewalls.insert,
            "firewalls.delete": firewalls.delete,
            "firewalls.patch": firewalls.patch,
            **{f"{name}.insert": self._insert for name in _STORED},
            **{f"{name}.delete": self._delete for name in _STORED},
        }

    def handle(self, call: ApiCall) -> Reply:
        """One request.

        Raises:
            GoogleError: It is refused.
        """
        collection, _, verb = call.action.partition(".")
        if collection not in _COLLECTIONS:
            raise GoogleError(404, "notFound", f"Not found: {call.method} {call.path} (not emulated)")
        schema.check(call)
        self._check(call, collection, verb)
        if call.action in self._writes:
            return answer(self._operations.once(call, lambda: self._writes[call.action](call)))
        if verb == "list":
            return answer(self._list(call, collection))
        if verb == "aggregatedList":
            return answer(self._aggregated(call, collection))
        if collection.endswith("Operations") and verb in ("get", "wait"):
            return answer(getattr(self._operations, verb)(self._scope(call, collection), call.params["name"]))
        special = {
            "projects.get": self._project,
            "projects.testIamPermissions": self._held,
            "projects.getEffectiveOrgPolicy": self._org_policy,
            "images.getFromFamily": self._family,
            "instances.getSerialPortOutput": self._serial,
        }
        if call.action in special:
            return answer(special[call.action](call))
        if verb != "get":
            raise GoogleError(404, "notFound", f"Not found: {call.method} {call.path} (not emulated)")
        return answer(self._get(call, collection))

    # -- who may ---------------------------------------------------------------------------------------------------------

    def _held(self, call: ApiCall) -> Row:
        asked = call.params["body"]["permissions"]
        held = [name for name in asked if name not in self._world.forbidden]
        return {"permissions": held} if held else {}

    def _org_policy(self, call: ApiCall) -> Row:
        constraint = str(call.params["body"]["constraint"])
        policy = self._world.org_policies.get(constraint.removeprefix("constraints/"))
        default = {} if constraint.endswith("requireOsLogin") else {"listPolicy": {"allValues": "ALLOW"}}
        return {"constraint": constraint, **(default if policy is None else policy)}

    def _check(self, call: ApiCall, collection: str, verb: str) -> None:
        project, path = call.params["project"], call.path.partition("/compute/v1/")[2]
        if project not in self._world.projects and not (project in IMAGE_PROJECTS and collection == "images"):
            raise not_found(f"projects/{project}")
        if verb == "insert" and call.params["body"].get("name"):
            path = f"{path}/{call.params['body']['name']}"
        needed = [f"compute.{collection}.{_VERBS.get(verb, verb)}"]
        if verb == "getEffectiveOrgPolicy":
            needed = ["orgpolicy.policy.get"]
        if call.action == "instances.insert":
            needed = [*_INSERT]
            if call.params["body"].get("resourcePolicies"):
                needed.append("compute.resourcePolicies.use")
        for name in needed:
            if name in self._world.forbidden:
                if "subnetworks" in name:
                    path = f"projects/{project}/regions/{region_of(call.region)}/subnetworks/default"
                raise permission(name, path if verb not in ("list", "aggregatedList") else f"projects/{project}")
        if "zone" in call.params and call.region not in ZONES:
            raise invalid("zone", call.region, "Unknown zone.")
        if "region" in call.params and call.region not in REGIONS:
            raise invalid("region", call.region, "Unknown region.")

    @staticmethod
    def _scope(call: ApiCall, collection: str) -> Scope:
        if collection.endswith("Operations"):
            kind = collection.removesuffix("Operations")
        else:
            kind = "zone" if "zone" in call.params else "region" if "region" in call.params else "global"
        return Scope(call.params["project"], kind, call.region if kind != "global" else "")

    # -- looking ---------------------------------------------------------------------------------------------------------

    def _rows(self, collection: str, project: str) -> Iterable[tuple[str, Row]]:
        """(place, resource) of everything of a kind; the caller holds the lock."""
        if collection == "instances":
            yield from ((vm.key[1], vm.row) for vm in self._instances.rows.values() if vm.key[0] == project)
        elif collection == "machineTypes":
            yield from (
                (zone, catalog_rows.machine_type(each, project, zone))
                for each in machine_types().values()
                for zone in each.zones
            )
        elif collection == "acceleratorTypes":
            yield from (
                (zone, catalog_rows.accelerator(name, project, zone))
                for name, each in ACCELERATORS.items()
                for zone in each.zones
            )
        elif collection == "zones":
            yield from (("", catalog_rows.zone(project, zone)) for zone in ZONES)
        elif collection == "regions":
            yield from (("", self._region(project, region)) for region in REGIONS)
        elif collection == "images":
            yield from (("global", catalog_rows.image(image)) for image in IMAGES if image.project == project)
        elif collection == "operations":
            yield from (
                (scope.place or "global", row) for scope, row in self._operations.all() if scope.project == project
            )
        else:
            found = self._world.stores[collection].items()
            yield from ((place, row) for (owner, place, _), row in found if owner == project)

    def _get(self, call: ApiCall, collection: str) -> Row:
        scope, name, places = self._scope(call, collection), call.params["name"], collection in ("zones", "regions")
        with self._world.lock:
            for where, row in self._rows(collection, scope.project):
                if row["name"] == name and where in ("" if places else scope.place, "global"):
                    return copy.deepcopy(row)
        raise not_found(f"{f'projects/{scope.project}' if places else scope.path}/{collection}/{name}")

    def _list(self, call: ApiCall, collection: str) -> Row:
        matches = filters.matcher(str(call.params.get("filter", "")))
        scope = self._scope(call, collection)
        if scope.kind == "zone" and scope.place in self._world.unreachable:
            raise GoogleError(503, "backendError", f"Zone {scope.place} is currently unavailable.")
        with self._world.lock:
            if collection.endswith("Operations"):
                rows = self._operations.newest(scope)
            else:
                place = scope.place or ("" if collection in ("zones", "regions") else "global")
                rows = [copy.deepcopy(row) for where, row in self._rows(collection, scope.project) if where == place]
                rows.sort(key=lambda row: str(row["name"]))
        if str(call.params.get("orderBy", "")) == "creationTimestamp desc":
            rows.sort(key=lambda row: str(row.get("creationTimestamp", "")), reverse=True)
        found, token = filters.page([row for row in rows if matches(row)], call.params, self._world.page_limit)
        return {
            "kind": f"{_kind(collection)}List",
            **({"items": found} if found else {}),
            **({"nextPageToken": token} if token else {}),
        }

    def _aggregated(self, call: ApiCall, collection: str) -> Row:
        if collection not in (*_ZONAL, *_SCOPE_OF):
            raise GoogleError(404, "notFound", f"Not found: {call.path} (not emulated)")
        matches = filters.matcher(str(call.params.get("filter", "")))
        kind = _SCOPE_OF.get(collection, "zone")
        lost = sorted(self._world.unreachable) if kind == "zone" else []
        part = self._world.partial or str(call.params.get("returnPartialSuccess", "false")).lower() == "true"
        if lost and not part:
            raise GoogleError(503, "backendError", f"Zone {lost[0]} is currently unavailable.")
        with self._world.lock:
            rows = [
                (place, copy.deepcopy(row))
                for place, row in self._rows(collection, call.params["project"])
                if place not in lost and place != "global" and matches(row)
            ]
        rows.sort(key=lambda each: (each[0], str(each[1]["name"])))
        found, token = filters.page(rows, call.params, self._world.page_limit)
        items: Row = {}
        for place in ZONES if kind == "zone" else REGIONS:
            scope = f"{kind}s/{place}"
            here = [row for where, row in found if where == place]
            if place in lost:
                items[scope] = {"warning": _warning("UNREACHABLE", f"The zone {place} is unreachable.", scope)}
            elif here:
                items[scope] = {collection: here}
            else:
                words = f"There are no results for scope '{scope}' on this page."
                items[scope] = {"warning": _warning("NO_RESULTS_ON_PAGE", words, scope)}
        return {
            "kind": f"{_kind(collection)}AggregatedList",
            "items": items,
            **({"nextPageToken": token} if token else {}),
            **({"unreachables": [f"zones/{zone}" for zone in lost]} if lost else {}),
        }

    def _project(self, call: ApiCall) -> Row:
        with self._world.lock:
            held = [vm.demand for vm in self._instances.rows.values() if vm.status != "TERMINATED"]
        used = {
            "CPUS_ALL_REGIONS": float(sum(each.kind.vcpus for each in held)),
            "GPUS_ALL_REGIONS": float(sum(each.gpus for each in held if not each.spot)),
            "FIREWALLS": float(len(self._world.stores["firewalls"])),
        }
        return {
            "kind": "compute#project",
            "id": PROJECT_NUMBER,
            "name": call.params["project"],
            "quotas": [
                {"metric": metric, "limit": self._world.quota("global", metric), "usage": used.get(metric, 0.0)}
                for metric in GLOBAL_QUOTAS
            ],
        }

    def _region(self, project: str, region: str) -> Row:
        held = [vm.demand for vm in self._instances.rows.values() if vm.status != "TERMINATED"]
        link = f"{HOST}/projects/{project}/regions/{region}"
        return {
            "kind": "compute#region",
            "id": str(1000 + REGIONS.index(region)),
            "name": region,
            "status": "UP",
            "selfLink": link,
            "zones": [f"{HOST}/projects/{project}/zones/{zone}" for zone in ZONES if region_of(zone) == region],
            "quotas": [
                {
                    "metric": metric,
                    "limit": self._world.quota(region, metric),
                    "usage": usage(metric, region, held, self._world.quota),
                }
                for metric in DEFAULT_QUOTAS
            ],
        }

    def _family(self, call: ApiCall) -> Row:
        project, family = call.params["project"], call.params["family"]
        for image in IMAGES:
            if (image.project, image.family) == (project, family):
                return catalog_rows.image(image)
        raise not_found(f"projects/{project}/global/images/family/{family}")

    def _serial(self, call: ApiCall) -> Row:
        vm = self._instances.get(call.params["project"], call.region, call.params["name"])
        text = self._instances.machines.console(vm.guest)[-1024 * 1024 :]
        return {"kind": "compute#serialPortOutput", "contents": text.decode("utf-8", "replace")}

    # -- changing --------------------------------------------------------------------------------------------------------

    def _to_instance(self, call: ApiCall) -> Row:
        verb: Callable[[str, str, str], Row] = getattr(self._instances, call.action.partition(".")[2])
        return verb(call.params["project"], call.region, call.params["name"])

    def _insert(self, call: ApiCall) -> Row:
        """Things that can be left behind."""
        collection, body = call.action.partition(".")[0], copy.deepcopy(call.params["body"])
        scope, name = self._scope(call, collection), str(body.get("name", ""))
        validation.check_name("resource.name", name)
        validation.check_labels("resource.labels", body.get("labels", {}))
        if collection == "resourcePolicies":
            validation.placement_policy(body)
        path, key = f"{scope.path}/{collection}/{name}", (scope.project, scope.place or "global", name)
        store = self._world.stores[collection]
        if key in store:
            raise exists(path)
        row = {
            **body,
            "kind": _kind(collection),
            "id": new_id(),
            "creationTimestamp": self._world.stamp(),
            "selfLink": f"{HOST}/{path}",
            "status": "READY",
        }
        if scope.place:
            row[scope.kind] = f"{HOST}/{scope.path}"
        if collection == "addresses":
            row.update(address=self._world.public_ip(), status="RESERVED", addressType="EXTERNAL")
        if collection == "disks":
            row.setdefault("type", f"{HOST}/{scope.path}/diskTypes/pd-standard")
            row.setdefault("sizeGb", "10")

        def work() -> None:
            with self._world.lock:
                store[key] = row

        return self._operations.start(scope, "insert", row, work)

    def _delete(self, call: ApiCall) -> Row:
        collection = call.action.partition(".")[0]
        scope, name = self._scope(call, collection), call.params["name"]
        key, store = (scope.project, scope.place or "global", name), self._world.stores[collection]
        path = f"{scope.path}/{collection}/{name}"
        with self._world.lock:
            row = store.get(key)
        if row is None:
            raise not_found(path)
        users = row.get("users") or self._instances.placed_by(row["selfLink"])
        if users:
            user = users[0].removeprefix(f"{HOST}/")
            raise GoogleError(
                400,
                "resourceInUseByAnotherResource",
                f"The {collection.removesuffix('s')} resource '{path}' is already being used by '{user}'",
            )

        def work() -> None:
            with self._world.lock:
                store.pop(key, None)

        return self._operations.start(scope, "delete", row, work)


def _kind(collection: str) -> str:
    return "compute#operation" if collection.lower().endswith("operations") else f"compute#{collection[:-1]}"


def _warning(code: str, message: str, scope: str) -> Row:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}
