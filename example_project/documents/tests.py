"""The app's own tests: what is measured, and who may write it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import SimpleTestCase, TestCase
from django.urls import reverse
from django.utils import timezone

from celery_reliable import ReliableTask
from documents.faults import POISON, is_poison
from documents.models import Document
from documents.readability import readability, sentences, syllables
from documents.structure import prose, structure
from documents.tasks import check_document


class ReadabilityTests(SimpleTestCase):
    """The score and its parts."""

    def test_syllables_of_common_words(self) -> None:
        expected = {
            "a": 1,
            "bread": 1,
            "walked": 1,
            "wanted": 2,
            "table": 2,
            "reading": 2,
            "document": 3,
            "the": 1,
            "idea": 2,
        }
        assert {word: syllables(word) for word in expected} == expected

    def test_sentences_end_at_stops_and_at_empty_lines(self) -> None:
        assert len(sentences('He came. "Why?" she asked.\n\nNo answer')) == 3

    def test_short_words_in_short_sentences_are_easy(self) -> None:
        assert readability("The cat sat on the mat. It was warm.").score > 90

    def test_long_words_in_long_sentences_are_hard(self) -> None:
        text = (
            "Notwithstanding considerable organisational disadvantages, participants acknowledge."
        )
        assert readability(text).score < 30

    def test_an_empty_text_has_a_score(self) -> None:
        assert readability("").grade == "empty"


class StructureTests(SimpleTestCase):
    """The findings."""

    def kinds(self, text: str) -> list[str]:
        return [finding["kind"] for finding in structure(text)["findings"]]

    def test_a_tidy_text_has_no_findings(self) -> None:
        assert self.kinds("# One\n\nText.\n\n## Two\n\nMore text.\n") == []

    def test_both_kinds_of_headings_are_seen(self) -> None:
        headings = structure("One\n===\n\ntext\n\n## Two\n\ntext\n")["headings"]
        assert [(one["level"], one["text"]) for one in headings] == [(1, "One"), (2, "Two")]

    def test_what_readers_stumble_over_is_found(self) -> None:
        long = " ".join(["Word"] * 31) + "."
        text = f"# One\n\n### Three\n\n{long}\n\n" + f"{long} " * 4 + "\n\n## Empty\n"
        long_ones = ["long sentence"] * 4
        expected = ["skipped level", "long sentence", "long paragraph", *long_ones, "empty section"]
        assert self.kinds(text) == expected

    def test_headings_are_no_prose(self) -> None:
        assert prose("# One\n\nText\nhere.\n") == "Text here."


class CheckTests(TestCase):
    """What a check writes into its row."""

    def setUp(self) -> None:
        self.document = Document.objects.create(name="a", path="/a", text="One. Two.")

    def check(self) -> None:
        with self.settings(DOCUMENT_CHECK_SECONDS=0):
            check_document.apply((self.document.pk,), throw=True)
        self.document.refresh_from_db()

    def test_the_findings_and_the_tasks_success_are_there(self) -> None:
        self.check()

        assert self.document.task_status == "succeeded"
        assert self.document.structure["n_sentences"] == 2
        assert [run.outcome for run in self.document.runs.all()] == ["written"]

    def test_a_check_that_another_task_has_replaced_writes_nothing(self) -> None:
        def loaded_anew(text: str) -> str:
            with self.captureOnCommitCallbacks():
                check_document.delay(self.document.pk)
            return prose(text)

        with mock.patch("documents.tasks.prose", loaded_anew):
            self.check()

        assert self.document.task_status == "waiting"
        assert self.document.readability is None
        assert [run.outcome for run in self.document.runs.all()] == ["refused"]


class CheckDocumentsTests(TestCase):
    """The command that loads a folder."""

    def test_each_file_is_published_once_its_row_is_committed(self) -> None:
        with (
            mock.patch.object(ReliableTask, "apply_async") as published,
            self.captureOnCommitCallbacks() as callbacks,
        ):
            call_command("check_documents", stdout=StringIO())
            published.assert_not_called()
            n_documents = Document.objects.count()

        assert n_documents >= 8
        assert len(callbacks) == n_documents

    def test_a_folder_can_be_loaded_again(self) -> None:
        with TemporaryDirectory() as folder:
            Path(folder, "a.txt").write_text("One.")
            call_command("check_documents", folder, stdout=StringIO())
            first = Document.objects.get()
            Path(folder, "a.txt").write_text("Two.")
            call_command("check_documents", folder, stdout=StringIO())

        second = Document.objects.get()
        assert second.text == "Two."
        assert first.task_id != second.task_id

    def test_a_folder_without_texts_is_an_error(self) -> None:
        with TemporaryDirectory() as folder, self.assertRaisesMessage(CommandError, "has no file"):
            call_command("check_documents", folder, stdout=StringIO())


class AdminTests(TestCase):
    """The pages that an editor sees."""

    def setUp(self) -> None:
        self.client.force_login(User.objects.create_superuser("editor"))
        self.document = Document.objects.create(name="a", path="/a", text="One. Two.")
        self.document.runs.create(
            task_id="task", attempt=1, worker="alpha", pid=1, started_at=timezone.now()
        )

    def test_the_list_and_a_document_with_its_runs_are_shown(self) -> None:
        listed = self.client.get(reverse("admin:documents_document_changelist"))
        self.assertContains(listed, "a</a>")

        page = self.client.get(reverse("admin:documents_document_change", args=[self.document.pk]))
        self.assertContains(page, "alpha")

    def test_selected_documents_are_checked_again(self) -> None:
        form = {"action": "check_again", "_selected_action": [self.document.pk]}
        with (
            mock.patch.object(ReliableTask, "apply_async") as published,
            self.captureOnCommitCallbacks(execute=True),
        ):
            self.client.post(reverse("admin:documents_document_changelist"), form)

        self.document.refresh_from_db()
        ((args, _, task_id, *_),) = [call.args for call in published.call_args_list]
        assert (args, task_id) == ((self.document.pk,), self.document.task_id)


class PoisonTests(SimpleTestCase):
    """The demo's fault injection."""

    def test_the_marker_means_nothing_unless_the_settings_allow_it(self) -> None:
        with self.settings(DOCUMENT_FAULTS_ALLOWED=False):
            assert not is_poison(POISON)
        with self.settings(DOCUMENT_FAULTS_ALLOWED=True):
            assert is_poison(POISON)
