"""What leaves with a site: names and addresses replaced, everything else untouched."""

from tokenpeak.report.release import cleaner


def test_names_and_addresses_are_replaced_everywhere() -> None:
    """Host names and addresses disappear from values and from running text."""
    clean = cleaner({"gpu-07.lab": "node 1"}, {"serving.lab"})
    found = clean(
        {
            "node": "gpu-07.lab",
            "message": "gpu-07.lab refused 10.1.2.3:8099, see http://serving.lab:8000/health",
            "argv": ["/home/ada/vllm", "--host", "10.1.2.3", "--port", "8099"],
        }
    )

    assert {
        "node": "node 1",
        "message": "node 1 refused address:8099, see http://address:8000/health",
        "argv": ["~/vllm", "--host", "address", "--port", "8099"],
    } == found


def test_numbers_versions_and_loopback_stay() -> None:
    """A version is no address, and neither is every address telling."""
    clean = cleaner({}, set())

    assert {"v": "vLLM 0.32.0", "h": "127.0.0.1", "n": 3} == clean({"v": "vLLM 0.32.0", "h": "127.0.0.1", "n": 3})


def test_a_node_with_a_common_name_leaves_other_words_alone() -> None:
    """A node called cpu is renamed where a node is meant, and nowhere else."""
    clean = cleaner({"cpu": "node 1"}, set())
    found = clean({"node": "cpu", "cpu": "EPYC", "inventory": "cpu", "production_downtime_s": {"cpu": 4.0}})

    assert {"node": "node 1", "cpu": "EPYC", "inventory": "cpu", "production_downtime_s": {"node 1": 4.0}} == found


def test_fields_that_name_a_machine_are_emptied() -> None:
    """A board's serial number, its users and production's address are not published."""
    clean = cleaner({}, set())
    node = {"gpus": [{"uuid": "GPU-1", "name": "L4"}], "vram_holders": ["1 x"], "production": {"url": "http://a"}}

    assert {
        "nodes": [{"gpus": [{"uuid": None, "name": "L4"}], "vram_holders": [], "production": {"url": None}}]
    } == clean({"nodes": [node]})


def test_load_hosts_and_the_machine_of_a_calibration_are_renamed() -> None:
    """Who offered the load, and where it was calibrated, is nobody's to publish either."""
    clean = cleaner({"lh-1": "load host 1", "gpu": "node 1"}, set())
    found = clean(
        {
            "load_hosts": ["lh-1"],
            "client": {"hosts": [{"load_host": "lh-1", "requests": 3}]},
            "calibrations": [{"host": "ada-laptop", "way": {"load_hosts": ["lh-1"], "server": "gpu"}}],
            "text": "Load host lh-1 was lost.",
        }
    )

    assert {
        "load_hosts": ["load host 1"],
        "client": {"hosts": [{"load_host": "load host 1", "requests": 3}]},
        "calibrations": [{"host": None, "way": {"load_hosts": ["load host 1"], "server": "node 1"}}],
        "text": "Load host load host 1 was lost.",
    } == found
