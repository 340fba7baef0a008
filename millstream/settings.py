"""Settings: one strict tree with every default; `millstream.loading` reads what a user sets of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

_MOST = 2**53

Count: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST)]
Whole: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e10)]
PositiveSeconds: TypeAlias = Annotated[float, Meta(gt=0, le=1e10)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
RedactionKind: TypeAlias = Literal["secrets", "entropy", "email", "phone", "card", "iban", "ip"]
"""What the edge can take out; see `millstream.capture.redaction`."""


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the settings file."""


class Storage(Section, frozen=True, kw_only=True):
    """Where things live. URLs follow SQLAlchemy: three slashes relative, four absolute."""

    data: str = ".millstream"
    log: str = "sqlite:///log.db"
    state: str = "sqlite:///log.db"
    buffer: str = "embedded"
    tracking: str = "sqlite:///mlflow.db"


class KafkaSettings(Section, frozen=True, kw_only=True):
    """The cluster behind ``[storage] log = "kafka://HOST:9092"``. ``namespace`` prefixes topics and groups.
    ``partitions``, ``replication``, ``min_insync`` and the retentions (0: for ever) are what
    ``topics create`` gives new topics. ``telemetry_generation``: see docs/kafka.md on growing.
    ``max_batch_bytes``: what one append may hold and still be one step. The password: better
    ``MILLSTREAM_KAFKA__PASSWORD`` in the environment, or ``password_file``.
    """

    namespace: str = ""
    partitions: Count = 4
    telemetry_generation: Count = 1
    replication: Count = 3
    min_insync: Count = 2
    telemetry_retention_s: Whole = 2_592_000
    retention_s: Whole = 0
    max_batch_bytes: Annotated[int, Meta(ge=1_000_000, le=90_000_000)] = 40_000_000
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = ""
    password: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    timeout_s: PositiveSeconds = 10.0


class Workers(Section, frozen=True, kw_only=True):
    """Workers on Kafka. ``session_s``: after how long a silent one loses its partitions; ``poll_s``: how long
    the consumer may go without asking for records; ``memory_bytes``: records delivered and not yet fed;
    ``max_dead_share`` of ``dead_window`` events: beyond it a worker stops itself (1: never).
    """

    session_s: PositiveSeconds = 30.0
    poll_s: PositiveSeconds = 300.0
    memory_bytes: Count = 32_000_000
    max_dead_share: Share = 0.5
    dead_window: Count = 1000


class Capture(Section, frozen=True, kw_only=True):
    """The edge: bounds and redaction before anything reaches the log (docs/capture.md). ``redact``: the kinds that
    are taken out. ``redact_fields``: further names whose values are secrets. ``redact_deny``, ``redact_allow``:
    regular expressions of what always goes, and of finds that stay. ``redactors``: Python files with ``find_KIND``
    functions, asked in a child process. ``redact_key_env``: the environment variable
    that holds the key of pseudonyms; without it there are none. ``blobs``: the directory that keeps whole what is
    cut, and images and sound; empty: nothing is kept. ``gateway``: the URL of a `millstream serve gateway` that the
    SDK sends to, in the place of the log (its token in MILLSTREAM_TOKEN). ``shares``: how many of the tasks go to
    train, held out and report, where the caller gives no split.
    """

    max_text_bytes: Count = 65_536
    max_event_bytes: Count = 1_000_000
    flush_ms: Whole = 50
    queue_events: Count = 10_000
    spool_bytes: Whole = 256_000_000
    redact: tuple[RedactionKind, ...] = ("secrets", "entropy")
    redact_fields: tuple[str, ...] = ()
    redact_deny: tuple[str, ...] = ()
    redact_allow: tuple[str, ...] = ()
    redactors: tuple[str, ...] = ()
    redactors_timeout_s: PositiveSeconds = 5.0
    redact_key_env: str = "MILLSTREAM_REDACT_KEY"
    blobs: str = ""
    gateway: str = ""
    shares: tuple[Amount, Amount, Amount] = (0.8, 0.1, 0.1)


class Assembly(Section, frozen=True, kw_only=True):
    """Timers and caps of assembly, by log time (see docs/events.md). ``max_open``: runs held by a partition, open or
    waiting for amendments; beyond it the one that has been idle longest is sealed. ``prices``: a price table file
    (docs/capture.md); empty: only costs that were told are known.
    """

    idle_s: Seconds = 1800
    gap_s: Seconds = 120
    grace_s: Seconds = 10
    max_age_s: Seconds = 86_400
    retain_s: Seconds = 172_800
    max_events: Count = 10_000
    max_bytes: Count = 32_000_000
    max_revisions: Count = 8
    max_open: Count = 200_000
    prices: str = ""


class Graders(Section, frozen=True, kw_only=True):
    """Which graders run on every trajectory. ``files``: Python files with ``@ms.grader`` functions; they run in a
    child process, which may take ``memory_bytes``, print ``output_bytes`` a call and grade for ``timeout_s``;
    ``workers`` of them side by side. ``retry_s``: what a judge or an endpoint that was away could not grade is graded
    again so long after, then after twice as long, up to an hour (0: by hand). ``examine``: which meet the attack
    battery when a process starts; ``all`` runs your own code, and the judges it asks, on some 500 runs once an epoch.
    """

    enabled: tuple[str, ...] = ("feedback", "format", "efficiency")
    files: tuple[str, ...] = ()
    timeout_s: PositiveSeconds = 10.0
    attempts: Count = 2
    memory_bytes: Count = 4_000_000_000
    output_bytes: Count = 1_000_000
    workers: Count = 1
    retry_s: Seconds = 60
    examine: Literal["builtin", "all", "none"] = "builtin"
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


class SandboxSettings(Section, frozen=True, kw_only=True):
    """Code that arrived as data (hosted ``python`` graders, code under test): what one run of it may use.
    ``workers``: how many run side by side. The last one is for a machine that holds nothing worth taking.
    """

    timeout_s: PositiveSeconds = 120.0
    memory_bytes: Count = 2_000_000_000
    disk_bytes: Count = 1_000_000_000
    output_bytes: Count = 1_000_000
    workers: Count = 1
    run_untrusted_code_without_a_sandbox: bool = False


Success: TypeAlias = float | Literal["middle"]
"""From which score on something is a success, or the middle of the range."""


class RewardSettings(Section, frozen=True, kw_only=True):
    """How the grades of a trajectory combine, and the range the result must lie in. ``success``: from which reward
    on a run is a success (``middle``: above the middle of the range). ``attribution_s``: how long after its end
    feedback and outcomes are still counted to a run (0: for ever).
    """

    formula: str = "feedback"
    low: float = 0.0
    high: float = 1.0
    success: Success = "middle"
    attribution_s: Seconds = 0


class BufferSettings(Section, frozen=True, kw_only=True):
    """Admission, quotas and grouping of the replay buffer. ``max_remembered``: runs without a place in the buffer that
    the stage remembers, for feedback or another grade that may come; the oldest is forgotten first.
    """

    namespace: str = "default"
    max_rollouts: Count = 100_000
    max_bytes: Count = 512_000_000
    max_remembered: Whole = 100_000
    group_timeout_s: Seconds = 3600
    max_share_success: Share = 1.0
    near_duplicate: Share = 0.7
    priority_tau_s: PositiveSeconds = 86_400
    max_uses: Count = 3


class TriggerSettings(Section, frozen=True, kw_only=True):
    """When the stream asks for a training: enough fresh informative groups. ``wait_for_gate``: not
    before the last candidate was judged; ``chain``: train on from the last candidate, not the champion.
    ``learnable_runs``: a task family of which the champion failed, or solved, every one of so many runs is
    left out (0: none is).
    """

    enabled: bool = True
    min_groups: Count = 64
    min_informative: Whole = 8
    max_staleness: Whole = 4
    max_rollouts: Count = 20_000
    learnable_runs: Whole = 32
    wait_for_gate: bool = True
    chain: bool = False


class PolicySettings(Section, frozen=True, kw_only=True):
    """The policy: any Hugging Face causal-LM directory. Empty: training is off."""

    lineage: str = "policy"
    base: str = ""


class TrainerSettings(Section, frozen=True, kw_only=True):
    """One fine-tune. ``tokens_per_batch`` counts padding; ``keep_reward``/``keep_per_group`` select
    what `sft` imitates. ``tokens_source = "rendered"``: runs without logged token ids go through the
    chat template (imitation only). ``options`` go to the algorithm.
    """

    algorithm: str = "sft"
    tokens_source: Literal["logged", "rendered"] = "logged"
    learning_rate: Amount = 5e-4
    epochs: Count = 3
    tokens_per_batch: Count = 3000
    max_length: Count = 4096
    keep_reward: float = 0.85
    keep_per_group: Count = 4
    max_grad_norm: Amount = 1.0
    warmup_steps: Whole = 0
    seed: int = 0
    threads: Count = 1
    lora_rank: Whole = 0
    heartbeat_s: PositiveSeconds = 10.0
    claim_timeout_s: PositiveSeconds = 60.0
    options: dict[str, Any] = field(default_factory=dict)


class GateSettings(Section, frozen=True, kw_only=True):
    """The offline gate. ``evaluation`` names ``module:function`` that runs a policy on held-out tasks;
    ``gold`` is the grader whose measurement decides, ``gold_low`` and ``gold_high`` its range, ``success`` from
    which score on an attempt is a success (``middle``: from the middle of the range). Margins are absolute (rates)
    or relative (cost).
    """

    enabled: bool = True
    evaluation: str = ""
    gold: str = "correct"
    gold_low: float = 0.0
    gold_high: float = 1.0
    success: Success = "middle"
    alpha: Share = 0.01
    tasks: Count = 300
    worlds: Count = 30
    min_pairs: Count = 250
    max_unscored: Share = 0.02
    temperature: Amount = 0.7
    format_margin: Amount = 0.03
    tool_error_margin: Amount = 0.03
    cost_margin: Amount = 0.10
    guardrails_decide: bool = True


class MetricsSettings(Section, frozen=True, kw_only=True):
    """Prometheus metrics, health and readiness over HTTP. ``port`` 0 takes a free one and prints it; a host that
    is not loopback needs a token (``token_file``, or MILLSTREAM_TOKEN). ``stalled_s``: a loop that has not
    turned for so long is unhealthy.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 9464
    token_file: str = ""
    sample_s: PositiveSeconds = 5.0
    stalled_s: PositiveSeconds = 300.0


class HostedSettings(Section, frozen=True, kw_only=True):
    """Grader JSON of the hosted service. ``on_failed``: what `millstream serve graders` answers when there is
    no grade: a null reward with its flags, or an HTTP error. ``endpoints``: beginnings of the URLs that graders of
    the kind ``endpoint`` may ask.
    """

    on_failed: Literal["null", "http_error"] = "null"
    source_bytes: Count = 256_000
    max_graders: Count = 64
    endpoints: tuple[str, ...] = ()
    endpoint_timeout_s: PositiveSeconds = 30.0


class JudgeSettings(Section, frozen=True, kw_only=True):
    """The model that judges ask: any OpenAI-compatible endpoint. ``base_url`` empty: there is none. ``model``:
    instead of the one that a grader names. ``key_env``: the environment variable that holds the key.
    ``structured``: how the endpoint is held to JSON; ``auto`` finds out. ``tries`` replies are read at most;
    ``retries``: how often a call is repeated while the endpoint is away. Prices are those of a million tokens.
    """

    base_url: str = ""
    model: str = ""
    key_env: str = "MILLSTREAM_JUDGE_KEY"
    structured: Literal["auto", "json_schema", "json_object", "none"] = "auto"
    tries: Count = 3
    retries: Whole = 4
    timeout_s: PositiveSeconds = 60.0
    deadline_s: PositiveSeconds = 120.0
    concurrency: Count = 8
    requests_per_minute: Whole = 0
    max_tokens: Count = 2000
    price_input: Amount = 0.0
    price_output: Amount = 0.0
    budget_per_day: Amount = 0.0
    cache_entries: Whole = 100_000


class ExportSettings(Section, frozen=True, kw_only=True):
    """``evaluations``: a file, or the URL of an OpenTelemetry collector (``http://127.0.0.1:4318/v1/logs``), that
    gets every grade as a ``gen_ai.evaluation.result`` event in OTLP JSON. Empty: none.
    """

    evaluations: str = ""


class ServeSettings(Section, frozen=True, kw_only=True):
    """What every `millstream serve` shares. ``hosts`` and ``origins`` are let in beside the server's own."""

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body_bytes: Count = 8_000_000
    body_timeout_s: PositiveSeconds = 30.0
    threads: Count = 8
    max_connections: Count = 256
    stop_timeout_s: Count = 10


class GatewaySettings(Section, frozen=True, kw_only=True):
    """What `millstream serve gateway` takes: a body of so many bytes when it is unzipped, and so many requests at a
    time; the next is asked to come back.
    """

    max_unzipped_bytes: Count = 32_000_000
    waiting: Count = 32


class ProxySettings(Section, frozen=True, kw_only=True):
    """What the proxy passes on and records. ``timeout_s``: how long the upstream may be silent.
    ``max_recorded_bytes``: a longer body, of a request or an answer, passes unrecorded; ``queue_bytes``: of all calls
    that wait to be recorded. ``idle_s``: a conversation that nobody ends is over after so long without a call;
    ``remember``: messages of open ones that are known again. ``policies``: which policy version a model's name
    stands for, ``{"my-model" = "LINEAGE/3"}`` or ``"3"``.
    """

    timeout_s: PositiveSeconds = 600.0
    max_body_bytes: Count = 600_000_000
    max_recorded_bytes: Count = 16_000_000
    queue_bytes: Count = 64_000_000
    idle_s: PositiveSeconds = 1800.0
    remember: Count = 200_000
    policies: dict[str, str] = field(default_factory=dict)
    logprob_kind: Literal["raw", "processed", "unknown"] = "raw"


class AlarmSettings(Section, frozen=True, kw_only=True):
    """When the stream says that a reward is being fooled (see docs/graders.md). ``gold``: the grader whose word
    stands against the reward's; where it is feedback, ``gold_wait_s`` is how long a run waits for it.
    ``fooled_share``: how often the reward may pay what gold fails. ``reference_tasks``: the runs of how many
    tasks make something to compare with; ``slack`` and ``drift_slack``: how much more is no news. ``hold_s``:
    runs are looked at in the order of their beginning, so long after it. ``stops``: what stops training.
    """

    enabled: bool = True
    gold: str = "feedback"
    gold_pass: float = 0.5
    gold_wait_s: Seconds = 21_600
    false_alarm: Annotated[float, Meta(gt=0, le=0.5)] = 0.01
    fooled_share: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    reference_tasks: Count = 200
    slack: Share = 0.01
    drift_slack: Share = 0.05
    hold_s: Seconds = 600
    stops: tuple[Literal["hack", "avoidance", "drift", "disagreement"], ...] = (
        "hack",
        "avoidance",
        "drift",
        "disagreement",
    )


class Settings(Section, frozen=True, kw_only=True):
    """The whole tree, every default in it."""

    storage: Storage = field(default_factory=Storage)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)

    workers: Workers = field(default_factory=Workers)
    capture: Capture = field(default_factory=Capture)
    assembly: Assembly = field(default_factory=Assembly)
    graders: Graders = field(default_factory=Graders)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)
    buffer: BufferSettings = field(default_factory=BufferSettings)
    trigger: TriggerSettings = field(default_factory=TriggerSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    hosted: HostedSettings = field(default_factory=HostedSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
