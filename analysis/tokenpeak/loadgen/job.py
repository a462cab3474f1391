"""Load job: the runs of one launch and the server they are for, as files; run.py carries it out.

Written into `output_dir`: `runs.json` (a list of RunRecord; energy is the caller's to add), `requests.parquet`,
`metrics.json` (the 1 Hz series of the engine's /metrics on the trial's clock) and `outcome.json` (a JobOutcome).
`progress_file` is rewritten about once a second.
"""

from collections.abc import Callable
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.ranking.objective import metric_value
from tokenpeak.records import RunRecord
from tokenpeak.spec import Declaration
from tokenpeak.spec.energy import EnergyFactors
from tokenpeak.spec.load import LoadLevel, MaxRateLoad
from tokenpeak.spec.pooling import require_latency_only
from tokenpeak.spec.quality import QualityJob
from tokenpeak.spec.slo import Slo
from tokenpeak.spec.workload import PoolingWorkload, Workload

OUTCOME = "outcome.json"
QUALITY, ANSWERS = "quality.json", "quality.json.zst"
"""A QualityMeasurement, and the QualityPasses that it came to, of a job that measures answers."""


class JobRun(Declaration):
    """One workload at one load level."""

    run_index: NonNegativeInt
    workload: Workload
    level: LoadLevel
    slo: Slo = Slo()
    seed: int = 0

    @model_validator(mode="after")
    def _limited(self) -> "JobRun":
        if isinstance(self.workload, PoolingWorkload):
            require_latency_only(self.slo, "slo: ")
            if isinstance(self.level, MaxRateLoad):
                require_latency_only(self.level.max_rate_under, "max_rate_under: ")
        return self


class Status(Declaration):
    """How far a job is; what the progress file holds."""

    run_index: int
    level_label: str
    phase: str
    requests_done: int
    requests_total: int | None
    output_tok_per_s: float | None = None
    ttft_s_p50: float | None = None


OnStatus = Callable[[Status], None]


class EarlyStop(Declaration):
    """The early-stop threshold: what the first run must reach for the others to be made."""

    metric: str
    threshold: float
    lower_is_better: bool = False

    def reason(self, first: RunRecord, left: int) -> str | None:
        """Why the `left` runs after the first are not made; None where it is badly measured, or good enough."""
        value = metric_value(first, self.metric, EnergyFactors())
        if not left or value is None or first.verdict.status != "valid":
            return None
        if value <= self.threshold if self.lower_is_better else value >= self.threshold:
            return None
        beyond = "above" if self.lower_is_better else "below"
        return (
            f"{left} further run{'s were' if left > 1 else ' was'} left out: {self.metric} of {first.workload.name} at "
            f"{first.level_label} was {value:.4g}, {beyond} the early-stop threshold of {self.threshold:.4g}, so this "
            "config is far behind the best so far."
        )


class JobOutcome(Declaration):
    """Why a job has fewer runs than it was given; all None when it has all."""

    lost_host: str | None = None
    """Which load host was lost, and why."""
    left_out: str | None = None
    """Why only the first run was made."""
    refused: str | None = None
    """Which adapters the server has not got: no run was made, and none would be in another launch."""


class LoadJob(Declaration):
    """The runs of one launch, in order, and the server they are for."""

    base_url: str
    model: str
    """The name that requests ask for."""
    runs: tuple[JobRun, ...] = Field(min_length=1)
    output_dir: Path
    trial_started_at_unix_s: float | None = None
    """The zero of the trial's clock; None: when the job starts."""
    api_key_file: Path | None = None
    headers: dict[str, str] = {}
    verify_tls: bool = True
    ca_file: Path | None = None
    metrics_url: str | None = None
    """None: /metrics beside the API; a server without one leaves the engine's side out."""
    progress_file: Path | None = None
    processes: PositiveInt | None = None
    """None: as many as the highest load level needs."""
    hosts: tuple[LoadHost, ...] = ()
    """The machines that offer the load together; empty: this one does."""
    run_deadline_s: PositiveFloat = 900
    stall_s: PositiveFloat = 120
    early_stop: EarlyStop | None = None
    """None: every run is made."""
    events_for_usage: bool = False
    """A stream without usage counts each event with text as a token: of a server that sends one for each."""
    quality: QualityJob | None = None
    """How the engine's answers are measured after the runs; None: not at all."""


def read_job(path: Path) -> LoadJob:
    """The job in a JSON file; raises LoadError saying which key is wrong."""
    try:
        return LoadJob.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} is not a load job: {error}") from error


def read_outcome(output_dir: Path) -> JobOutcome:
    """How the job that wrote into this folder ended; raises ValueError where the file is none."""
    path = output_dir / OUTCOME
    return JobOutcome.model_validate_json(path.read_bytes()) if path.is_file() else JobOutcome()


def job_server(job: LoadJob) -> Server:
    """The server that the job is for; raises LoadError where its key cannot be read."""
    key = None
    if job.api_key_file is not None:
        try:
            key = job.api_key_file.read_text().strip()
        except OSError as error:
            raise LoadError(f"The API key's file cannot be read: {error}") from error
    return Server(
        job.base_url,
        api_key=key,
        headers=job.headers,
        verify=job.verify_tls,
        ca_file=job.ca_file,
    )
