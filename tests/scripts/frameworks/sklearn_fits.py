"""scikit-learn: the estimator is the argument."""

import sys

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

rng = np.random.default_rng(0)
rows = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
x = rng.normal(size=(rows, 20))
y = (x[:, 0] * x[:, 1] > 0).astype(int)
models = {
    "forest": RandomForestClassifier(n_estimators=5000, n_jobs=2),
    "boosting": GradientBoostingClassifier(n_estimators=5000),
    "histogram": HistGradientBoostingClassifier(max_iter=20000, early_stopping=False),
    "svm": SVC(),
    "network": MLPClassifier((64,), max_iter=4000),
    "grid-trees": GridSearchCV(RandomForestClassifier(10), {"max_depth": list(range(2, 32))}, cv=5),
    "grid": GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": list(np.logspace(-3, 3, 40))}, cv=5),
    "grid-processes": GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0]}, cv=2, n_jobs=2),
}


class Crossed:
    def fit(self, x, y):
        for c in (0.1, 1.0, 10.0):
            cross_val_score(SVC(C=c), x, y, cv=60)


class AfterTrees:
    def fit(self, x, y):
        RandomForestClassifier(10).fit(x, y)
        for c in range(1, 400):
            SVC(C=c).fit(x, y)


class AfterFolds:
    def fit(self, x, y):
        cross_val_score(RandomForestClassifier(2), x, y, cv=3)
        RandomForestClassifier(7000).fit(x, y)


models.update(crossed=Crossed(), aftertrees=AfterTrees(), afterfolds=AfterFolds())
models[sys.argv[1]].fit(x, y)
