"""What git does to a repository."""

from tests.measure.destructive.corpus import scripts

SCRIPTS = scripts(
    "git",
    r"""
### checkout_file needs=git
sh("git checkout -q -- src/model.py")

### checkout_force needs=git
sh("git checkout -qf v1 2> /dev/null")

### switch_branch needs=git
sh("git switch -q -f -c other v1")

### restore_staged needs=git
sh("git restore --staged --worktree src staged.txt")

### stash needs=git
sh("git stash -q")

### stash_untracked needs=git
sh("git stash -q -u || git stash -q")

### stash_drop needs=git
sh("git stash drop -q")

### stash_pop needs=git
sh("git stash pop -q || true")

### reset_hard needs=git
sh("git reset -q --hard HEAD~1")

### clean needs=git
sh("git clean -qfdx -e .git")

### commit_all needs=git
sh("git commit -qam 'Results of an experiment'")

### add_all needs=git
sh("git add src ignored -f")

### status_refreshes needs=git
sh("touch README.md && git update-index --refresh || true")

### gc_prune needs=git
sh("git stash drop -q; git reflog expire --expire=now --all && git gc -q --prune=now")

### repack needs=git
sh("git repack -adq")

### config needs=git
sh("git config user.name Somebody")

### config_global needs=git
sh("git config --global user.name Somebody")

### rm_r needs=git
sh("git rm -rqf src")

### mv refused needs=git
sh("git mv src source")

### branch_delete needs=git
sh("git branch -q -m main renamed")

### tag_delete needs=git
sh("git tag -d v1 > /dev/null")

### update_ref needs=git
sh("git update-ref -d refs/heads/main")

### filter_branch needs=git
sh("git stash -q; FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter cat --index-filter"
   " 'git rm -q --cached README.md' HEAD > /dev/null 2>&1")

### rebase needs=git
sh("git stash -q; git rebase -q --root --exec 'touch rebased'")

### merge needs=git
sh("git stash -q; git merge -q --no-ff -m Merge v1 -s ours || git commit -q --allow-empty -m More")

### submodule_deinit needs=git
sh("git submodule --quiet deinit -f --all")

### submodule_update needs=git
sh("rm library/library.py && git submodule --quiet update --force")

### worktree_remove needs=git
sh("git worktree remove --force ../outside/worktree")

### worktree_add needs=git
sh("git worktree add -q -b trial data/empty v1")

### hooks needs=git
hook = Path(".git/hooks/pre-commit")
hook.parent.mkdir(exist_ok=True)
hook.write_text("#!/bin/sh\nrm -rf data\n")
hook.chmod(0o755)
sh("git commit -qm Hooked")

### init_over needs=git
sh("git init -q --bare .")

### apply needs=git
sh("git diff | git apply -R")

### archive_remote needs=git
sh("git archive -o archive.tar HEAD")

### clone_over refused needs=git
sh("rm -rf library && git clone -q ../outside/library library 2>&1")

### push_to_neighbour needs=git
sh("git push -q ../outside/library HEAD:refs/heads/pushed")

### index_lock needs=git
Path(".git/index.lock").write_text("")
os.remove(".git/index")

### delete_repository
shutil.rmtree(".git")

### write_reference
Path(".git/refs/heads/main").write_text("0" * 40 + "\n")

### objects_chmod
for folder, _, files in os.walk(".git/objects"):
    for name in files:
        os.chmod(os.path.join(folder, name), 0o644)
        os.truncate(os.path.join(folder, name), 0)

### sparse_checkout needs=git
sh("git sparse-checkout set src > /dev/null 2>&1 || true; git config core.sparseCheckout true")

### pull_rebase_autostash needs=git
sh("git pull -q --rebase --autostash ../outside/library main > /dev/null 2>&1 || true; git fetch -q ../outside/library main")

### notes needs=git
sh("git notes add -m note")
""",
)
