"""Inference as text, as a document and as a page: throughput, phases, and a service."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from costgpu.estimator.inference.notes import inference_notes
from costgpu.estimator.predict import predict
from costgpu.estimator.prepared import prepare
from costgpu.estimator.scope import scope_of
from costgpu.estimator.service import as_served, serve
from costgpu.estimator.verdict import Preferences, decide
from costgpu.models.prediction import Candidate, Service, Verdict
from costgpu.models.workload import Phase, Unit, WorkloadProfile
from costgpu.render.html.verdict_page import verdict_html
from costgpu.render.phrases import steps_phrase
from costgpu.render.text.estimate import verdict_json, verdict_text
from costgpu.render.text.service import service_value
from tests.unit.estimator import inferring
from tests.unit.estimator.advisable import gpu, host, product
from tests.unit.estimator.advisable import phase as training_phase
from tests.unit.render.html_page import EVIL, harmless

TODAY = date(2026, 11, 21)
PLACES = (gpu("T4", 0.5), gpu("L40S", 1.9), host(0.2))
SCORING, CHAT = inferring.profile(inferring.scoring()), inferring.profile(inferring.chat(4, 50_000), script="chat.py")
ENDLESS = inferring.profile(inferring.scoring(8, None))
MIXED = inferring.profile(training_phase(product(2048, 20), label="score.py:3"), inferring.scoring(), script="score.py")


def answered(profile: WorkloadProfile, rate: float | None = None) -> tuple[Verdict, Service | None]:
    scope = scope_of(profile, per_items=rate is not None)
    workload = prepare(profile, scope, year=2026)
    here, offers = predict(workload, Candidate(offer=None)), [predict(workload, place) for place in PLACES]
    verdict = decide(scope, here, offers, Preferences(), inference_notes(profile))
    service = None if rate is None else serve(workload, rate, here, offers)
    return (verdict if service is None else as_served(verdict, service)), service


def text_of(profile: WorkloadProfile, rate: float | None = None) -> str:
    verdict, service = answered(profile, rate)
    text = verdict_text(verdict, profile, TODAY, service=service, explain=True)
    assert max(map(len, text.splitlines())) <= 80
    return text


def document_of(profile: WorkloadProfile) -> Any:
    return json.loads(verdict_json(answered(profile)[0], profile, TODAY))


def test_a_prompt_of_one_prompt_is_a_prompt() -> None:
    profile = inferring.profile(inferring.chat(1, 300, name="prompt"))
    assert steps_phrase(profile.phases[0]) == "300 prompts, 128 new tokens each"


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("price", [1e-6, 0.5, 99_999.0])
def test_wide_amounts_leave_the_table_in_80_columns(batch: int, price: float) -> None:
    profile = inferring.profile(inferring.scoring(batch))
    scope = scope_of(profile)
    workload = prepare(profile, scope, year=2026)
    here, offers = predict(workload, Candidate(offer=None)), [predict(workload, gpu("T4", price))]
    text = verdict_text(decide(scope, here, offers, Preferences(), ()), profile, TODAY)
    assert "Once it runs" in text
    assert max(map(len, text.splitlines())) <= 80, text


@pytest.mark.parametrize("profile", [SCORING, CHAT, ENDLESS, MIXED])
@pytest.mark.parametrize("rate", [None, 3.0, 1e9])
def test_everything_fits_a_terminal_and_the_page_is_harmless(profile: WorkloadProfile, rate: float | None) -> None:
    text_of(profile, rate)
    verdict, service = answered(profile, rate)
    page = harmless(verdict_html(verdict, profile, (), TODAY, service=service))
    assert "What it makes, once it runs" in page.text
    assert ("The machines for this load" in page.text) == (rate is not None)


def test_items_per_second_and_the_cost_of_a_thousand() -> None:
    text = text_of(SCORING)
    for words in (
        "1,000 batches of 64 images: ",
        "Once it runs, boot and set-up apart:",
        "per s          80 % per 1,000              80 %",
        " this machine ",
        "Boot and set-up come once: ",
    ):
        assert words in text


def test_tokens_come_before_prompts() -> None:
    lines = text_of(CHAT).splitlines()
    heads = [line.split()[0] for line in lines if line.rstrip().endswith("80 %") and "per " in line]
    assert heads == ["output", "input", "prompts"]
    words = " ".join(" ".join(lines).split())
    assert "of 4 prompts, 128 new tokens each" in words
    assert "the script allows 512. Where an answer ends depends on the data." in words
    assert "continuous batching are not predicted" in words
    assert "Fetching its weights (2.6 GB)" in words


def test_a_script_that_trains_and_scores_lists_its_phases() -> None:
    lines = text_of(MIXED).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("By phase:"))
    block = " ".join(lines[start : start + 5])
    assert "training (score.py:3), 100,000 steps in 10 epochs" in block
    assert "inference (score.py:9), 1,000 batches of 64 images" in block
    assert "Phase by phase" in harmless(verdict_html(answered(MIXED)[0], MIXED, (), TODAY)).text
    assert "Phase by phase" not in harmless(verdict_html(answered(SCORING)[0], SCORING, (), TODAY)).text


def test_a_service_has_its_machines_in_the_place_of_the_offers() -> None:
    text = text_of(ENDLESS, 3.0)
    assert text.startswith("Serve 3 images/s on a CPU: ")
    assert "For 3 images/s, boot and set-up apart:" in text
    assert "machines" in text
    assert "For 1,000 images:" not in text
    assert "autoscaling" in text


def test_the_document_of_inference_is_additive() -> None:
    document = document_of(CHAT)
    (phase,) = document["inference"]
    assert [place["where"] for place in phase["places"]] == ["here", "offer", "offer"]
    names = [one["name"] for one in phase["places"][1]["throughput"]]
    assert names == ["prompt", "input token", "output token"]
    assert phase["places"][1]["throughput"][0].keys() == {"name", "per_second", "usd_per_thousand"}
    assert phase["places"][1]["throughput"][2].keys() == {"name", "per_second", "usd_per_million"}
    assert document["best_cpu"]["phases"][0]["label"] == "chat.py:14"
    assert document["version"] == 1
    assert document_of(ENDLESS)["pays_from"][0]["saves"] == "time"
    assert document_of(inferring.profile(training_phase(product(512, 1))))["inference"] == []


def test_a_service_as_a_document() -> None:
    _, service = answered(SCORING, 3.0)
    assert service is not None
    value = service_value(service)
    assert value["choice"] == "cpu"
    assert value["recommended"] == value["best_cpu"]
    assert value["best_cpu"]["usd_per_month"]["value"] == pytest.approx(service.best_cpu.usd_per_month.value)  # type: ignore[union-attr]
    json.dumps(value)


def evil(phase: Phase) -> Phase:
    return replace(phase, label=EVIL, unit=replace(phase.unit, item=EVIL))


@pytest.mark.parametrize("rate", [None, 3.0])
def test_hostile_names_do_nothing(rate: float | None) -> None:
    profile = inferring.profile(training_phase(product(512, 1), label=EVIL), evil(inferring.scoring()), script=EVIL)
    verdict, service = answered(profile, rate)
    harmless(verdict_html(verdict, profile, (), TODAY, service=service))


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (inferring.scoring(), "1,000 batches of 64 images"),
        (inferring.scoring(1), "1,000 batches of 1 image"),
        (replace(inferring.scoring(), unit=Unit(name="batch")), "1,000 batches"),
        (
            replace(inferring.scoring(), total=replace(inferring.known(1000), steps_per_epoch=500.0)),
            "1,000 batches of 64 images in 2 epochs",
        ),
    ],
)
def test_units_in_words(phase: Phase, words: str) -> None:
    assert steps_phrase(phase) == words
