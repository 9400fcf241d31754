"""Run inside `manage.py shell`: changes to keys, people and models, by the product's own actions where it can."""

from django.contrib.sessions.models import Session
from django.utils.timezone import now

from console.accounts import credentials
from console.accounts.models import APIKey, Member, Organisation, Role, User
from inference.evaluation.actions import ask_for_run
from inference.evaluation.models import EvaluationPrompt, EvaluationRun, EvaluationSet
from inference.lifecycle import actions
from inference.models import Deployment, ModelVersion


class keys:
    @staticmethod
    def create(name: str, organisation: Organisation | None = None) -> str:
        key = credentials.new_key()
        APIKey.objects.create(
            organisation=organisation or Organisation.objects.get(slug="demo"),
            name=name,
            prefix=credentials.prefix(key),
            digest=credentials.digest(key),
        )
        return key

    @staticmethod
    def create_elsewhere() -> str:
        other, _ = Organisation.objects.get_or_create(slug="elsewhere", defaults={"name": "Elsewhere"})
        return keys.create("elsewhere", other)

    @staticmethod
    def revoke(name: str) -> int:
        return APIKey.objects.filter(name=name).update(revoked_at=now())

    @staticmethod
    def expire(name: str) -> int:
        return APIKey.objects.filter(name=name).update(expires_at=now())

    @staticmethod
    def create_in(slug: str) -> str:
        """A key named like the organisation that it is the only one of."""
        return keys.create(slug, Organisation.objects.create(slug=slug, name=slug))

    @staticmethod
    def close_organisation(slug: str) -> int:
        return Organisation.objects.filter(slug=slug).update(is_active=False)


class people:
    @staticmethod
    def create(name: str) -> str:
        user = User.objects.create_user(name, password="guest-password-17")
        Member.objects.create(organisation=Organisation.objects.get(slug="demo"), user=user, role=Role.END_USER)
        return name

    @staticmethod
    def deactivate(name: str) -> int:
        return User.objects.filter(username=name).update(is_active=False)

    @staticmethod
    def change_password(name: str) -> None:
        user = User.objects.get(username=name)
        user.set_password("another-password-17")
        user.save()

    @staticmethod
    def sign_out(name: str) -> int:
        user = str(User.objects.get(username=name).pk)
        mine = [s.pk for s in Session.objects.all() if s.get_decoded().get("_auth_user_id") == user]
        return Session.objects.filter(pk__in=mine).delete()[0]


class versions:
    @staticmethod
    def create(name: str, slug: str) -> str:
        """A draft, in the place of the version that the deployment had; that one's id."""
        version = ModelVersion.objects.create(name=name, version="1", context_length=4096)
        deployment = Deployment.objects.get(slug=slug)
        before, deployment.model_version = deployment.model_version, version
        deployment.save()
        return str(before.pk)

    @staticmethod
    def add_canary(slug: str) -> str:
        """A second version of the model that is live, as a canary at a deployment of its own."""
        live = ModelVersion.objects.get(lifecycle="live")
        version = ModelVersion.objects.create(name=live.name, version="canary", context_length=4096)
        Deployment.objects.create(slug=slug, model_version=version, engine="simulated")
        for act in ["propose", "approve"] * 2:
            getattr(actions, act)(User.objects.get(username="admin"), version.pk)
        version.refresh_from_db()
        return version.lifecycle

    @staticmethod
    def step(name: str, *acts: str) -> str:
        """Take steps as the demo's administrator, who needs no second person."""
        version = ModelVersion.objects.get(name=name)
        for act in acts:
            getattr(actions, act)(User.objects.get(username="admin"), version.pk)
        version.refresh_from_db()
        return version.lifecycle

    @staticmethod
    def put_back(version: str, slug: str) -> int:
        return Deployment.objects.filter(slug=slug).update(model_version_id=version)

    @staticmethod
    def evaluate_by(name: str, threshold: int) -> str:
        """Every answer passes the first of its two prompts and fails the second."""
        version = ModelVersion.objects.get(name=name)
        made, _ = EvaluationSet.objects.update_or_create(model_version=version, defaults={"threshold": threshold})
        checks = [{"kind": "regex", "pattern": "."}, {"kind": "number", "value": -987654321}]
        for position, check in enumerate(checks):
            EvaluationPrompt.objects.get_or_create(
                evaluation_set=made, position=position, prompt="why is the sky blue", check_of_answer=check
            )
        return str(made)

    @staticmethod
    def ask_for_run(name: str) -> str:
        return str(ask_for_run(User.objects.get(username="admin"), ModelVersion.objects.get(name=name).pk).pk)

    @staticmethod
    def run_state(name: str) -> str:
        run = EvaluationRun.objects.filter(model_version__name=name).first()
        return f"{run.state} {run.passed} {run.total}"
