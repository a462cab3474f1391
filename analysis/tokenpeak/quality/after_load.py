"""The quality measurement as the last part of a load job."""

from datetime import UTC, datetime

from tokenpeak.atomic import write_atomically
from tokenpeak.errors import TokenpeakError
from tokenpeak.loadgen.job import ANSWERS, QUALITY, LoadJob, job_server
from tokenpeak.quality.measure import Measured, measure
from tokenpeak.quality.passes import written
from tokenpeak.records.quality import QualityMeasurement, QualityPasses
from tokenpeak.spec.quality import QualityJob


def measure_after(job: LoadJob, asked: QualityJob) -> None:
    """Measure the server of a load job after its runs, into the job's folder; what goes wrong is written there too."""
    began = datetime.now(UTC)
    try:
        found = measure(job_server(job), job.model, asked)
    except TokenpeakError as error:
        found = Measured(measurement=QualityMeasurement(problem=str(error)[:500], started_at=began))
    if found.passes:
        file = job.output_dir / ANSWERS
        write_atomically(file, written(QualityPasses(passes=found.passes), file))
    write_atomically(job.output_dir / QUALITY, found.measurement.model_dump_json())
